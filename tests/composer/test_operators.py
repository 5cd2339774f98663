"""A part of the sweep over PyTorch's own samples of its operators: nothing differs from eager, nothing crashes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.composer.operators import sweep

SAMPLE = (
    "add", "remainder", "fmod", "floor_divide", "div", "atan2", "tan", "acosh", "erfinv", "copysign", "fmax", "hypot", "heaviside",
    "isclose", "bitwise_and", "bitwise_left_shift", "any", "all", "count_nonzero", "nansum", "nan_to_num",
    "lerp", "where", "clamp", "cumsum", "index_add", "scatter_add", "gather", "index_select", "softmax",
    "nn.functional.gelu", "nn.functional.dropout", "bernoulli", "normal",
    "nn.functional.cross_entropy", "nn.functional.binary_cross_entropy", "nn.functional.max_pool2d", "view_as", "squeeze", "unbind",
)  # fmt: skip


@pytest.mark.slow
def test_samples_of_pytorch_agree() -> None:
    outcomes = [outcome for lot in sweep(SAMPLE, ("float32", "bfloat16", "bool"), 2) for outcome in lot]
    assert [o for o in outcomes if o.status in ("differing", "crashing")] == []
    counts = Counter(outcome.status for outcome in outcomes)
    assert counts["ok"] > 100 and counts["cannot"] < 10
