"""Lowering rules on tensors of no dimension, no elements or one element: shapes, types and values are PyTorch's."""

from __future__ import annotations

import pytest
import torch

from tests.composer.programs import Program
from tests.composer.ranks import cases, faults, quiet, rules


@pytest.fixture(autouse=True)
def _quietly(caplog: pytest.LogCaptureFixture) -> None:
    quiet()


@pytest.mark.slow
def test_some_rules() -> None:
    count, wrong = faults(["xlogy", "sum", "cat"])
    assert wrong == {} and count > 80


def test_calls_hold_every_kind_of_shape() -> None:
    shapes = {
        tuple(tensor.shape)
        for calls in cases("mul")
        for _, _, tensors in calls
        for tensor in tensors
    }
    assert {(), (0,), (1,), (1, 0), (2, 0, 3)} <= shapes


def test_the_logarithm_of_whole_numbers_is_a_floating_point_one() -> None:
    x, y = torch.tensor([0.5, 0.0, 2.0, -1.0]), torch.tensor([0, 0, 3, 7])
    program = Program(lambda x, y: torch.xlogy(x, y) * 2, x, y)
    assert not program.externs
    torch.testing.assert_close(program.run(), program.eager())


@pytest.mark.hand
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_third_rule() -> None:
    """All of them: `python -m tests.composer.ranks`."""
    count, wrong = faults(rules()[::3])
    assert wrong == {} and count > 1500
