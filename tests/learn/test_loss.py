"""The policy-gradient loss by hand."""

from __future__ import annotations

import math

import pytest
import torch

from dvk.config import ObjectiveConfig
from dvk.learn.loss import clipped, divergence, gathered

SETTINGS = ObjectiveConfig()


def losses(ratios: list[float], advantages: list[float]) -> list[float]:
    old = torch.zeros(len(ratios))
    found: list[float] = clipped(
        torch.tensor([math.log(r) for r in ratios]), old, torch.tensor(advantages), SETTINGS
    ).tolist()
    return found


def test_clips_above_below_and_dually() -> None:
    # Good tokens: the gain ends at 1.28; bad ones: the relief ends at 0.8, the punishment at 3 times the advantage.
    assert losses([1.1, 2.0, 0.5], [1.0, 1.0, 1.0]) == pytest.approx([-1.1, -1.28, -0.5])
    assert losses([0.9, 0.5, 2.0, 9.0], [-1.0] * 4) == pytest.approx([0.9, 0.8, 2.0, 3.0])


def test_what_is_clipped_has_no_gradient() -> None:
    logprobs = torch.tensor([math.log(2.0), math.log(1.1), math.log(9.0)], requires_grad=True)
    clipped(logprobs, torch.zeros(3), torch.tensor([1.0, 1.0, -1.0]), SETTINGS).sum().backward()
    assert logprobs.grad is not None and logprobs.grad.tolist() == pytest.approx([0.0, -1.1, 0.0])


def test_on_policy_the_gradient_is_reinforce() -> None:
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    clipped(logprobs, logprobs.detach(), torch.tensor([0.5, -2.0]), SETTINGS).sum().backward()
    assert logprobs.grad is not None and logprobs.grad.tolist() == [-0.5, 2.0]


def test_aggregations() -> None:
    values, rows = torch.tensor([1.0, 3.0, 5.0]), torch.tensor([7, 7, 2])
    of = {
        name: float(gathered(values, rows, 3, 2, ObjectiveConfig(aggregate=name)))
        for name in ("token", "row", "sum")
    }
    assert of == pytest.approx({"token": 3.0, "row": 3.5, "sum": 0.0045})
    by_row = ObjectiveConfig(aggregate="row")
    halves = gathered(values[:2], rows[:2], 3, 2, by_row) + gathered(
        values[2:], rows[2:], 3, 2, by_row
    )
    assert float(halves) == 3.5, "micro-batches add up"


def test_divergence_is_zero_at_home_and_positive_elsewhere() -> None:
    assert divergence(torch.tensor([-1.0]), torch.tensor([-1.0])).tolist() == [0.0]
    assert bool((divergence(torch.tensor([-1.0, -1.0]), torch.tensor([-2.0, -0.5])) > 0).all())
    assert divergence(torch.tensor([-1.0]), torch.tensor([-1.0001])).item() == pytest.approx(
        5e-9, rel=1e-2
    ), "small ones are no 0"
    assert math.isfinite(divergence(torch.tensor([-90.0]), torch.tensor([0.0])).item())
