"""A part of the sweep over PyTorch's own samples of its operators: nothing differs from eager, nothing crashes."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.composer.operators import Case, called, nearer, sweep

SAMPLE = (
    "add",
    "remainder",
    "fmod",
    "floor_divide",
    "div",
    "atan2",
    "tan",
    "acosh",
    "erfinv",
    "copysign",
    "fmax",
    "hypot",
    "heaviside",
    "isclose",
    "bitwise_and",
    "bitwise_left_shift",
    "any",
    "all",
    "count_nonzero",
    "nansum",
    "nan_to_num",
    "lerp",
    "where",
    "clamp",
    "cumsum",
    "index_add",
    "scatter_add",
    "gather",
    "index_select",
    "softmax",
    "nn.functional.gelu",
    "nn.functional.dropout",
    "bernoulli",
    "normal",
    "nn.functional.hinge_embedding_loss",
    "nn.functional.cross_entropy",
    "nn.functional.binary_cross_entropy",
    "nn.functional.max_pool2d",
    "view_as",
    "squeeze",
    "unbind",
)


@pytest.mark.hand
@pytest.mark.slow
def test_samples_of_pytorch_agree() -> None:
    outcomes = [
        outcome for lot in sweep(SAMPLE, ("float32", "bfloat16", "bool"), 2) for outcome in lot
    ]
    assert [o for o in outcomes if o.status in ("differing", "crashing")] == []
    counts = Counter(outcome.status for outcome in outcomes)
    assert counts["ok"] > 100 and counts["cannot"] < 10


def test_a_half_result_may_differ_from_eager_towards_the_truth_alone() -> None:
    case = Case(
        "hinge",
        "bfloat16",
        "function",
        0,
        nn.Hardshrink(),
        (torch.linspace(-2, 2, 9, dtype=torch.bfloat16),),
    )
    want = called(case, lambda x: x + 0.25)  # eager's rounding
    for shift, near in ((0.125, True), (0.25, True), (0.375, False), (float("nan"), False)):
        got = called(case, lambda x, shift=shift: F.hardshrink(x) + shift)
        assert nearer(case, got, called(case, lambda x: F.hardshrink(x) + 0.25)) is near
    assert not nearer(case, called(case, lambda x: x[:4]), want)
