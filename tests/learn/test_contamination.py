"""Rows like the tasks of a suite are found, whatever was renamed or reordered in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk.errors import UsageError
from dvk.learn.diversity import contamination
from dvk.resources import resource
from tests.learn.example_rows import one

REFERENCE = '''import torch
import torch.nn as nn

SIZE = 64


class Model(nn.Module):
    """A block."""

    def __init__(self, width: int):
        super(Model, self).__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.linear(x))
        return self.norm(hidden + x) * 0.5


def get_inputs():
    return [torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return [SIZE]
'''


@pytest.fixture
def suites(tmp_path: Path) -> contamination.Suites:
    folder = tmp_path / "suite" / "level2"
    folder.mkdir(parents=True)
    (folder / "7_block.py").write_text(REFERENCE)
    (folder / "broken.py").write_text("def (")
    return contamination.Suites([tmp_path / "suite"], 0.9)


@pytest.mark.parametrize(
    "changes, found",
    [
        ({}, "the same module"),
        (
            {"SIZE = 64": "SIZE = 4096", "torch.randn(SIZE, SIZE)": "torch.rand(2, SIZE)"},
            "the same module",
        ),
        (
            {
                "hidden": "h",
                "Model": "Net",
                "linear =": "fc =",
                "self.linear(": "self.fc(",
                "x: torch.Tensor": "inputs",
                "+ x": "+ inputs",
                "(x))": "(inputs))",
            },
            "the same module",
        ),
        (
            {
                '    """A block."""\n': "    # another comment\n",
                "super(Model, self)": "super()",
                " -> torch.Tensor": "",
            },
            "the same module",
        ),
        ({"* 0.5": "* 0.25"}, "the module of suite/level2/7_block.py"),
        (
            {
                "torch.relu": "torch.sigmoid",
                "nn.LayerNorm(width, eps=1e-5)": "nn.GroupNorm(8, width)",
                "hidden + x": "hidden",
            },
            None,
        ),
    ],
)
def test_a_suite_s_task_is_known_again(
    suites: contamination.Suites, changes: dict[str, str], found: str | None
) -> None:
    source = REFERENCE
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    match = suites.match(source)
    assert match is None if found is None else found in (match or "")


def test_shipped_tasks_are_not_one_another(tmp_path: Path) -> None:
    """Spine against itself: each file is found, and of the examples one near copy, though all look alike on the outside."""
    spine, shipped = resource("data", "tasks", "spine"), resource("data", "tasks", "examples")
    suites = contamination.Suites([spine], 0.9)
    for path in sorted(spine.glob("*.py")):
        assert suites.match(path.read_text()) == f"the same module as spine/{path.name}"
    # That one differs from its spine sibling by a residual that is added.
    assert [path.name for path in shipped.glob("*.py") if suites.match(path.read_text())] == [
        "conv_bn_relu.py"
    ]
    prompt = "Optimize:\n```python\n" + (spine / "pair_linear_gelu.py").read_text() + "```\n"
    said = ({"role": "user", "content": prompt}, {"role": "assistant", "content": "an answer"})
    assert (
        suites.match(contamination.source_of(one(messages=said)) or "")
        == "the same module as spine/pair_linear_gelu.py"
    )


def test_a_missing_suite(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Python files"):
        contamination.Suites([tmp_path], 0.9)
