"""Weights written without a version bump, by batch norm or a fused optimizer: tensors that a drop-in derived from them are recomputed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from dvk import nanolang
from dvk.composer import Plan
from dvk.composer.capture.export import trace_module
from tests.composer.programs import differences, run_source
from tests.composer.several_inputs import FOLDED, joined
from tests.nanolang.compact_programs import candidate

USED, OTHER, FOREIGN = torch.randn(2, 3, 6, 6), torch.randn(1, 3, 8, 8), torch.randn(3, 3, 6, 6)


@cache
def composed(*calls: torch.Tensor) -> ModuleType:
    return run_source(joined(FOLDED, [(call,) for call in calls], ("x",))[1].source)


def one() -> nn.Module:
    return composed(USED).ModelNew()


def several() -> nn.Module:
    return composed(OTHER, USED).ModelNew()


def replaced() -> nn.Module:
    return composed(USED).replace(nn.Sequential(run_source(FOLDED).Model()))[0]


def from_compact_text() -> nn.Module:
    graph = trace_module(run_source(FOLDED).Model().eval(), [USED], ["x"])
    text = nanolang.write(graph, Plan(("fold_batch_norm", "fuse_pointwise")), "cpp")
    assert "held(" in text
    return candidate(FOLDED, graph, text, "cpp").ModelNew()


@torch.no_grad()
def statistics(model: nn.Module, x: torch.Tensor, step: Callable[[], None]) -> None:
    model.train()
    model(3 * x + 1)
    model.eval()


@torch.no_grad()
def statistics_of_a_child(model: nn.Module, x: torch.Tensor, step: Callable[[], None]) -> None:
    model.norm.train()
    model(3 * x + 1)
    model.norm.eval()


def training(model: nn.Module, x: torch.Tensor, step: Callable[[], None]) -> None:
    model.train()
    model(x).square().mean().backward()
    step()
    model.eval()


def tuning(model: nn.Module, x: torch.Tensor, step: Callable[[], None]) -> None:
    model(x).square().mean().backward()
    step()


def tuning_with_a_look(model: nn.Module, x: torch.Tensor, step: Callable[[], None]) -> None:
    result = model(x)
    with torch.no_grad():
        model(USED)
    result.square().mean().backward()
    step()


@pytest.mark.parametrize("given", [USED, FOREIGN], ids=["same", "another"])
@pytest.mark.parametrize(
    "write", [statistics, statistics_of_a_child, training, tuning, tuning_with_a_look]
)
@pytest.mark.parametrize("make", [one, several, replaced, from_compact_text])
@pytest.mark.slow
def test_derived_tensors_follow_their_weights(
    make: Callable[[], nn.Module], write: Callable[..., None], given: torch.Tensor
) -> None:
    torch.manual_seed(0)
    new, old = make().eval(), run_source(FOLDED).Model().eval()
    new.load_state_dict(old.state_dict())
    steps = [torch.optim.AdamW(model.parameters(), 0.1, fused=True).step for model in (new, old)]
    for _ in range(2):
        with torch.no_grad():
            want = old(USED)
            assert differences(new(USED), want, scale=3) == [] and new._dvk_ready is True
        for model, step in zip((new, old), steps, strict=True):
            write(model, given, step)
        with torch.no_grad():
            assert not torch.allclose(old(USED), want, atol=1e-3)
    with torch.no_grad():
        assert differences(new(USED), old(USED), scale=3) == [] and new._dvk_ready is True


def original(new: nn.Module) -> nn.Module:
    """State after `replace`: its own forward and train(), the attributes shared."""
    other = run_source(FOLDED).Model()
    other.__dict__ = new.__dict__
    return other


def twin(new: nn.Module) -> nn.Module:
    """Another drop-in with these weights."""
    other = type(new)()
    other._parameters, other._buffers, other._modules = new._parameters, new._buffers, new._modules
    return other


@pytest.mark.parametrize("other_of", [original, twin])
@pytest.mark.parametrize("write", [statistics, statistics_of_a_child, training, tuning])
@pytest.mark.parametrize("make", [one, from_compact_text])
@pytest.mark.slow
def test_writes_by_another_module_are_noticed(
    make: Callable[[], nn.Module], write: Callable[..., None], other_of: Any
) -> None:
    torch.manual_seed(0)
    new = make().eval()
    other = other_of(new).eval()
    step = torch.optim.AdamW(other.parameters(), 0.1, fused=True).step
    with torch.no_grad():
        before = new(USED)
    write(other, USED, step)
    with torch.no_grad():
        want = run_source(FOLDED).Model().eval()
        want.load_state_dict(new.state_dict())
        assert differences(new(USED), want(USED), scale=3) == [] and new._dvk_ready is True
        assert not torch.allclose(new(USED), before, atol=1e-3)


@pytest.mark.slow
def test_compiled_steps_are_noticed_too() -> None:
    new = one().eval()
    step = torch.compile(torch.optim.AdamW(new.parameters(), 0.1, fused=True).step, backend="eager")
    with torch.no_grad():
        before = new(USED)
    tuning(new, USED, step)
    want = run_source(FOLDED).Model().eval()
    want.load_state_dict(new.state_dict())
    with torch.no_grad():
        assert differences(new(USED), want(USED), scale=3) == [] and not torch.allclose(
            new(USED), before, atol=1e-3
        )


def test_optimizer_steps_on_other_weights_keep_derived_tensors() -> None:
    new, student = one().eval(), nn.Linear(500, 500)  # not in memory that other tests have freed
    with torch.no_grad():
        new(USED)
        made = new._dvk_made
        student.weight.grad = torch.ones(500, 500)
        torch.optim.AdamW(student.parameters(), fused=True).step()
        new(USED)
    assert new._dvk_made is made


def test_calls_without_weight_writes_keep_derived_tensors() -> None:
    new = one().eval()
    with torch.no_grad():
        new(USED)
        made = new._dvk_made
        new(FOREIGN)
    new.requires_grad_(False)
    new(FOREIGN), new(USED.clone().requires_grad_()).sum().backward()
    assert new._dvk_made is made
