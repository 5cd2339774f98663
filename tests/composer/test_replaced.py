"""`replace` converts what the drop-in's own file would have made, and leaves whatever computes something else."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

from dvk.composer import dropin
from dvk.records import Task
from tests.composer.programs import differences, drop_in, run_source

SOURCE = '''
import functools
import torch
from torch import nn
import torch.nn.functional as F

GAIN = 2.0


def scaled(x, by=3.0):
    return x * by * GAIN


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) + 0.25


class Base(nn.Module):
    offset = 0.5

    @staticmethod
    def shifted(x, *, by=1.5):
        return x + by


class Net(Base):
    def __init__(self):
        super().__init__()
        self.inner, self.linear = ModelNew(), nn.Linear(6, 6)

    @property
    def slope(self):
        return 0.1

    @torch.no_grad()
    def forward(self, x):
        act = lambda t: F.leaky_relu(t, self.slope) + (lambda s: s * 0.75)(t)
        y = scaled(act(self.linear(x))) if 0 <= x.dim() else x.replace("a", "b")
        return self.shifted(self.inner(y)) + self.offset - 4.5


def get_inputs():
    return [torch.randn(4, 6)]
'''
X = torch.randn(4, 6)


@pytest.fixture(scope="module")
def made() -> ModuleType:
    return drop_in(SOURCE, X, entry="Net")[0]


def converted(made: ModuleType, source: str) -> bool:
    """Whether a live model of this source is converted; what it computes stays."""
    live = run_source(source, "live").Net().eval()
    with torch.no_grad():
        want = live(X)
        new = made.replace(nn.Sequential(live))
        assert differences(new(X), want) == []
    return isinstance(new[0], made.ModelNew)


OTHERS = [
    ("- 4.5", "- 5.5"), ("0.75", "0.5"), ("return 0.1", "return 0.2"), ("*, by=1.5", "*, by=2.5"), ("by=3.0", "by=2.0"),
    ("x + by", "x - by"), ("offset = 0.5", "offset = 0.6"), ("GAIN = 2.0", "GAIN = 3.0"), ("+ 0.25", "+ 0.5"), ("0 <= x", "1 <= x"),
]  # fmt: skip


@pytest.mark.parametrize("change", OTHERS, ids=lambda change: change[1])
def test_a_class_that_differs_is_left_as_it_is(made: ModuleType, change: tuple[str, str]) -> None:
    assert change[0] in SOURCE
    assert not converted(made, SOURCE.replace(*change))


@pytest.mark.parametrize("text", [
    SOURCE, "# moved\n\n" + SOURCE.replace("        y =", "        # a comment\n\n        y ="), SOURCE.replace("\n\n\n", "\n\n"),
    SOURCE.replace("def get_inputs", "def another(x):\n    return x\n\n\ndef get_inputs"),
])  # fmt: skip
def test_the_same_class_from_elsewhere_is_converted(made: ModuleType, text: str) -> None:
    assert converted(made, text)


def test_a_subclass_of_the_same_name_is_left_as_it_is(made: ModuleType) -> None:
    class Shifted(made.Net):
        @staticmethod
        def shifted(x: torch.Tensor) -> torch.Tensor:
            return x - 100

    Shifted.__name__ = "Net"
    live = Shifted().eval()
    assert made.replace(live) is live
    assert isinstance(made.replace(made.Net().eval()), made.ModelNew)


def test_a_part_of_another_class_of_the_same_name_is_noticed(made: ModuleType) -> None:
    live = run_source(SOURCE, "live").Net().eval()
    live.inner = run_source(SOURCE.replace("0.25", "0.5"), "other").ModelNew()
    assert made.replace(live) is live


@torch.no_grad()
def test_where_nothing_is_faster_nothing_is_converted() -> None:
    text = dropin.unchanged(Task(id="test", name="test", source=SOURCE, entry="Net", kind="module"), "as it is")
    live = run_source(SOURCE.replace("- 4.5", "- 5.5"), "live").Net().eval()
    want = live(X)
    assert torch.equal(run_source(text).replace(live)(X), want)
