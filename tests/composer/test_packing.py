"""Packed linears of one input: exact, weights stay live, and only where packing is legal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer import applicable
from dvk.composer.dialect import not_in_dsl
from dvk.nanolang import structures
from tests.composer.programs import Program, capture, compiled, differences

randn = torch.randn


class Projected(nn.Module):
    """Three linears and `behind` applied to their results."""

    def __init__(self, behind: Callable[..., Any], bias: bool = True):
        super().__init__()
        self.q, self.k, self.v = (
            nn.Linear(12, 8, bias),
            nn.Linear(12, 8, bias),
            nn.Linear(12, 20, bias),
        )
        self.behind = behind

    def forward(self, x: torch.Tensor) -> Any:
        return self.behind(self.q(x), self.k(x), self.v(x))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT / 3, -1) @ v


BEHIND: dict[str, tuple[Callable[..., Any], bool]] = {
    "attention": (attention, True),
    "attention without bias": (attention, False),
    "returned": (lambda q, k, v: (q, k, v), True),
    "returned as views": (lambda q, k, v: (q.view(-1, 2, 4), k.transpose(0, 1), v.flatten()), True),
    "a gate": (lambda q, k, v: (torch.sigmoid(q) * k, F.gelu(v)), True),
    "written in place": (lambda q, k, v: (q.add_(k), v.relu_()), True),
    "one is read twice, one is unused": (
        lambda q, k, v: q.tanh() + q.sum(-1, keepdim=True) - k.mean(),
        False,
    ),
}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.slow
def test_results_are_the_same_with_one_product(own: bool) -> None:
    torch.manual_seed(0)
    made = {}
    for name, (behind, bias) in BEHIND.items():
        module = Projected(behind, bias)
        x = randn(3, 5, 12)
        made[name] = Program(
            module,
            x,
            recipes=lambda graph: tuple(
                r for r in applicable(graph, "cpu", "cpp") if own or r[:3] != "own"
            ),
        )
    compiled(made.values())
    assert {
        name: differences(p.run(), p.eager(), scale=3) for name, p in made.items()
    } == dict.fromkeys(made, [])
    assert all("pack_linears" in p.recipes for p in made.values())
    if not own:
        assert {
            name: p.externs.count("aten.linear.default") for name, p in made.items()
        } == dict.fromkeys(made, 1)


def test_packed_weights_follow_every_kind_of_update() -> None:
    program = Program(Projected(attention), randn(5, 12))
    module = program.module
    updates: list[Callable[[], object]] = [
        lambda: module.q.weight.mul_(1.5),
        lambda: module.v.bias.fill_(0.25),
        lambda: module.load_state_dict({k: v * 0.5 for k, v in module.state_dict().items()}),
        lambda: setattr(module.v, "weight", nn.Parameter(randn(20, 12))),
        lambda: setattr(
            module.v, "weight", nn.Parameter(module.v.weight.as_strided((20, 12), (1, 20)))
        ),
    ]
    for update in updates:
        before = program.run()
        with torch.no_grad():
            update()
        assert differences(program.run(), program.eager(), scale=3) == []
        assert differences(program.run(), before) != []


class Twice(nn.Module):
    """Reads its input before and after it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 5), nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> Any:
        return self.a(x), x.add_(1), self.b(x)


class Shifted(nn.Module):
    """Linears whose bias is one number for all features."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 5), nn.Linear(4, 6)
        self.a.bias, self.b.bias = nn.Parameter(randn(1)), nn.Parameter(randn(1))

    def forward(self, x: torch.Tensor) -> Any:
        return self.a(x), self.b(x)


REFUSED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "inputs that differ": (
        lambda x, y, w, v: (F.linear(x, w), F.linear(y, v)),
        (randn(3, 4), randn(3, 4), randn(5, 4), randn(6, 4)),
    ),
    "weights that are inputs": (
        lambda x, w, v: (F.linear(x, w), F.linear(x, v)),
        (randn(3, 4), randn(5, 4), randn(6, 4)),
    ),
    "an input that changes between": (Twice(), (randn(3, 4),)),
    "biases that broadcast": (Shifted(), (randn(3, 4),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_declines_if_it_would_be_wrong(name: str) -> None:
    forward, args = REFUSED[name]
    assert "pack_linears" not in applicable(capture(forward, *args).graph, "cpu", "cpp")


def test_only_alike_linears_are_joined_and_texts_that_a_model_learns_have_none_of_it() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 5), nn.Linear(4, 6, bias=False), nn.Linear(4, 7)

        def forward(self, x: torch.Tensor) -> Any:
            return self.a(x), self.b(x), self.c(x.relu())

    captured = capture(Mixed(), randn(3, 4))
    assert "pack_linears" not in applicable(captured.graph, "cpu", "cpp")
    captured = capture(Projected(attention), randn(5, 12))
    assert not any(set(names) & set(not_in_dsl("cpp")) for names in structures(captured, "cpp"))
