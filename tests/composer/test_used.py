"""Usage lines of a drop-in name its own definitions."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from dvk.composer.dropin import replacing
from dvk.records import Task


@pytest.mark.parametrize(
    ("kind", "entry", "source", "said"),
    [
        (
            "module",
            "Net",
            "class ModelNew: pass\ndef replace(model): pass",
            "from best import ModelNew, or replace(model)",
        ),
        ("module", "Net", "class ModelNew: pass", "from best import ModelNew"),
        (
            "function",
            "f",
            "class ModelNew: pass\ndef f_new(*args): pass",
            "from best import f_new; f_new(x, y) is f(x, y)",
        ),
        (
            "function",
            "f",
            "class ModelNew: pass",
            "from best import ModelNew; ModelNew()(x, y) is f(x, y)",
        ),
    ],
)
def test_usage_lines_name_definitions_of_the_drop_in(
    kind: Any, entry: str, source: str, said: str
) -> None:
    """A language model's drop-in as well."""
    line, text = replacing.used(
        Task(id="", name="", source="", entry=entry, kind=kind), source, ["x", "y"]
    )
    assert line == said
    named = {
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert named <= {"ModelNew", "f_new", "replace"} and all(name in source for name in named)


def test_a_file_that_has_a_replace_keeps_it() -> None:
    task = Task(
        id="", name="", source="def replace(): pass\nclass Net: pass", entry="Net", kind="module"
    )
    source = task.source + "\nclass ModelNew: pass\n" + replacing.text(task)
    assert replacing.used(task, source)[0] == "from best import ModelNew, or dvk_replace(model)"
