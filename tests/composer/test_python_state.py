"""Python state that forward() changes prevents a single graph; code that only looks like it does not."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dvk.composer.capture.export import CannotCompose, trace_module
from dvk.tasks.entry import as_module
from tests.composer.programs import capture

NUMBER = 0
CACHE: dict[str, Any] = {}
LOG = logging.getLogger(__name__)


class Held(nn.Module):
    """A module with state of many kinds; `step` is what forward() does with it."""

    made = 0

    def __init__(self, step: Callable[[Any, torch.Tensor], torch.Tensor]):
        super().__init__()
        self.step = [step]
        self.calls, self.cache, self.kept, self.plain = 0, [], {}, torch.zeros(3)
        self.holder = type("Holder", (), {})()
        self.register_buffer("mean", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step[0](self, x)


def counter(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls += 1
    return x + 1


def appended(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.cache.append(x)
    return x + 1


def kept(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.kept["x"] = x
    return x + 1


def plain(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.plain = x * 2
    return x + 1


def assigned_buffer(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.mean = self.mean * 0.9 + x
    return self.mean


def new_attribute(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.last = x
    return x + 1


def in_an_object(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.holder.number = 3
    return x + 1


def frozen(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.weight.requires_grad_(False)
    return x + self.weight


def class_attribute(self: Any, x: torch.Tensor) -> torch.Tensor:
    Held.made += 1
    return x + 1


def in_a_global(self: Any, x: torch.Tensor) -> torch.Tensor:
    CACHE["x"] = 1 + len(CACHE)
    return x + 1


def written_global(self: Any, x: torch.Tensor) -> torch.Tensor:
    global NUMBER
    NUMBER += 1
    return x + 1


def wants_gradients(self: Any, x: torch.Tensor) -> torch.Tensor:
    x.requires_grad_()
    return x + 1


def drawn_by_python(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * random.random()


CHANGED = {
    counter: "self.calls",
    appended: "self.cache",
    kept: "self.kept",
    plain: "self.plain",
    assigned_buffer: "self.mean",
    new_attribute: "self.last",
    in_an_object: "self.holder",
    frozen: "self.weight",
    class_attribute: "Held.made",
    in_a_global: "CACHE",
    written_global: "NUMBER",
    wants_gradients: "requires_grad",
    drawn_by_python: "random",
}


@pytest.mark.parametrize("step", CHANGED, ids=lambda step: step.__name__)
@pytest.mark.slow
def test_a_change_of_python_state_is_named(step: Any) -> None:
    with pytest.raises(CannotCompose, match=rf"forward\(\) changes .*{CHANGED[step]}"):
        capture(Held(step), torch.randn(3))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.relu(x)


def test_the_module_the_file_and_the_line_are_named() -> None:
    line = Counting.forward.__code__.co_firstlineno + 1
    with pytest.raises(CannotCompose, match=rf"`self\.calls`, test_python_state\.py:{line}:"):
        capture(Counting(), torch.randn(2, 3))
    graph = capture(nn.Sequential(nn.Linear(3, 3), Counting()), torch.randn(2, 3)).graph
    assert [node.kwargs["place"] for node in graph.nodes if node.op == "left"] == [[None, "1", ""]]


def in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.mean.mul_(0.9).add_(x)
    self.plain.add_(1)
    return self.mean + self.plain


def trains_a_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.norm(x[None].repeat(2, 1))


def same_value(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls = 0
    self.cache = []
    return x + 1


def logged(self: Any, x: torch.Tensor) -> torch.Tensor:
    LOG.debug("called with %s", x.shape)
    return x + 1


@pytest.mark.parametrize(
    "step", [in_place, trains_a_norm, same_value, logged], ids=lambda step: step.__name__
)
def test_operator_writes_and_equal_values_are_no_change(step: Any) -> None:
    model = Held(step)
    capture(model, torch.randn(3))
    assert "forward" not in vars(model)


def remembered(self: Any, x: torch.Tensor) -> torch.Tensor:
    if str(len(x)) not in CACHE:
        CACHE[str(len(x))] = len(x) / 2
    return x * CACHE[str(len(x))]


def test_a_module_level_cache_filled_by_the_first_call_is_not_a_state_change() -> None:
    CACHE.clear()
    assert [
        n.args[1]
        for n in capture(Held(remembered), torch.randn(3)).graph.nodes
        if n.op == "aten.mul.Tensor"
    ] == [1.5]


COUNT = 0


def counted(x: torch.Tensor) -> torch.Tensor:
    global COUNT
    COUNT += 1
    return torch.tanh(x)


def test_the_globals_of_a_function_count_too() -> None:
    with pytest.raises(
        CannotCompose,
        match=rf"`{__name__}.COUNT`, test_python_state.py:{counted.__code__.co_firstlineno + 2}",
    ):
        trace_module(as_module(counted), [torch.randn(3)], ["x"])


class Makes(dict):  # type: ignore[type-arg]
    """A dictionary that makes a new value whenever one is looked up."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)()

    def items(self) -> Any:
        return [(key, self[key]) for key in self]


MADE = Makes(relu=nn.ReLU)


class Looks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return MADE["relu"](x) + 1


def test_capturing_leaves_a_dictionary_that_makes_its_values_as_it_is() -> None:
    capture(Looks(), torch.randn(3))
    assert dict.__getitem__(MADE, "relu") is nn.ReLU


class Generates(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = (n for n in range(9))
        try:
            return torch.relu(x) + next(steps)
        except ValueError:
            return x


def test_a_generator_that_is_closed_early_is_no_exception() -> None:
    assert "left" not in [node.op for node in capture(Generates(), torch.randn(3)).graph.nodes]
