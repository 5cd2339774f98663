"""Help of every command: `-h`, whole sentences, groups, and examples that the command takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dvk.cli import app
from dvk.cli.help import EXAMPLES, GROUPS, INPUTS, DefaultGroup
from dvk.tasks.specs import parse_input

ROOT: Any = typer.main.get_command(app)


def every(command: Any = ROOT, path: str = "dvk") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every(inner, f"{path} {name}")


COMMANDS = dict(every())


@pytest.mark.parametrize("path", COMMANDS)
@pytest.mark.slow
def test_every_command_has_short_help_with_examples(path: str) -> None:
    done = CliRunner().invoke(app, [*path.split()[1:], "-h"], prog_name="dvk")
    assert (
        done.exit_code == 0
        and "Examples:\n  dvk " in done.output
        and "..." not in done.output.partition("Commands:")[2]
    )
    assert all(name in done.output for name in getattr(COMMANDS[path], "commands", {}))


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_examples_are_command_lines(line: str) -> None:
    words, command, path = shlex.split(line)[1:], ROOT, "dvk"
    while words and words[0] in getattr(command, "commands", {}):
        path += f" {words[0]}"
        command = command.commands[words.pop(0)]
    if isinstance(command, DefaultGroup):
        command = next(iter(command.commands.values()))
    context = command.make_context(path, list(words), resilient_parsing=True)
    assert not context.args or path == "dvk skills search"
    known = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    } | {"--help"}
    own = words[: words.index("--")] if "--" in words else words  # a program's options follow it
    assert {word for word in own if word.startswith("--")} <= known, line


def test_examples_and_groups_are_of_commands_and_options_that_exist() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    options = {
        name
        for command in COMMANDS.values()
        for parameter in command.params
        for name in parameter.opts
    }
    assert {name for names in GROUPS.values() for name in names} <= options
    shown = CliRunner().invoke(app, ["optimize", "-h"]).output
    assert all(heading in shown for heading in GROUPS) and INPUTS in shown


def test_the_grammar_is_what_is_read() -> None:
    shown = [
        word
        for line in INPUTS.splitlines()
        for word in line.split()
        if "=" in word and word[0].islower()
    ]
    assert len(shown) >= 8
    specs = {text: parse_input(text) for text in shown}
    assert specs["labels=int64[64]<1000"].high == 1000 and specs["w=float16[8]:rand"].fill == "rand"
    assert (
        specs["causal=True"].value is True
        and specs["sizes=[2,3]"].value == [2, 3]
        and specs["mode='mean'"].value == "mean"
    )
    assert specs["x=float32[]"].shape == ()
