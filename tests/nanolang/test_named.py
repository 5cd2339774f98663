"""Arguments of forward that can only be passed by name: fused like others, and refused by position as in the original."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.export import trace_call
from dvk.records import Task
from tests.composer.programs import run_source

SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, shift=0.5, *, scale, flag=True):
        y = x * scale + shift
        return torch.relu(y) if flag else y


def scaled(x, *, scale, shift=0.5):
    return torch.tanh(x * scale) + shift
"""


def made(entry: str, args: list[Any], kwargs: dict[str, Any], names: list[str]) -> Any:
    """The drop-in's namespace."""
    from dvk.tasks.entry import as_module

    here = run_source(SOURCE)
    model = here.Model() if entry == "Model" else as_module(here.scaled)
    captured = trace_call(model, args, kwargs, names)
    task = Task(
        id=entry,
        name=entry,
        source=SOURCE,
        entry=entry,
        kind="module" if entry == "Model" else "function",
    )
    return run_source(
        compose(task, captured, Plan(applicable(captured.graph, "cpu", "cpp")), "cpp").source
    )


@torch.no_grad()
@pytest.mark.parametrize("more", [{}, {"flag": False}, {"flag": True}])
def test_arguments_by_name_are_fused(more: dict[str, Any]) -> None:
    x, scale = torch.randn(8, 64), torch.randn(64)
    here = made("Model", [x], {"scale": scale, **more}, ["x"])
    new, old = here.ModelNew(), here.Model()
    assert (
        torch.allclose(new(x, scale=scale, **more), old(x, scale=scale, **more), atol=1e-6)
        and new._dvk_ready
    )
    other = {"scale": scale, "flag": not more.get("flag", True)}
    assert torch.allclose(new(x, **other), old(x, **other), atol=1e-6), (
        "made for another value: the original"
    )
    for model in (new, old):
        with pytest.raises(TypeError):
            model(x, 0.5, scale)


@torch.no_grad()
def test_functions_too() -> None:
    x, scale = torch.randn(8, 64), torch.randn(64)
    here = made("scaled", [x], {"scale": scale, "shift": 2.0}, ["x"])
    assert torch.allclose(
        here.scaled_new(x, scale=scale, shift=2.0),
        here.scaled(x, scale=scale, shift=2.0),
        atol=1e-6,
    )
    with pytest.raises(TypeError):
        here.scaled_new(x, scale, 2.0)
