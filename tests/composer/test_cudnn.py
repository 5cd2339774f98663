"""Convolutions for which cuDNN measures its algorithms: the same call, with everything else as it is set."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dvk.composer import applicable
from dvk.composer.runtime.convolution import dvk_convolution
from tests.composer.programs import capture, drop_in

randn = torch.randn
SOURCE = """
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, x, w, b):
        return {}
"""
CALLS = {
    "1d": ("F.conv1d(x, w, b, 2, 3, 2)", (randn(2, 4, 19), randn(6, 4, 3), randn(6))),
    "2d, nothing given": ("F.conv2d(x, w)", (randn(2, 4, 9, 8), randn(6, 4, 3, 2), randn(6))),
    "2d, in channels-last": (
        "F.conv2d(x, w, b, (1, 2), (0, 1), 1, 2)",
        (randn(2, 4, 9, 8).to(memory_format=torch.channels_last), randn(6, 2, 3, 3), randn(6)),
    ),
    "2d, bfloat16": (
        "F.conv2d(x, w, b)",
        tuple(t.bfloat16() for t in (randn(2, 4, 9, 8), randn(6, 4, 3, 3), randn(6))),
    ),
    "3d": (
        "F.conv3d(x, w, b, (1, 2, 1), (1, 0, 1), (1, 1, 2), 2)",
        (randn(2, 6, 7, 9, 8), randn(4, 3, 3, 1, 2), randn(4)),
    ),
    "transposed 1d": (
        "F.conv_transpose1d(x, w, b, 3, 1, 2)",
        (randn(2, 4, 9), randn(4, 5, 4), randn(5)),
    ),
    "transposed 2d": (
        "F.conv_transpose2d(x, w, b, (2, 3), (1, 0), (1, 2), 2, (1, 2))",
        (randn(2, 4, 6, 5), randn(4, 3, 3, 2), randn(6)),
    ),
    "transposed 3d": (
        "F.conv_transpose3d(x, w)",
        (randn(2, 4, 3, 4, 5), randn(4, 3, 2, 2, 2), randn(3)),
    ),
}
OTHERS = {
    "not a batch": ("F.conv2d(x, w, b)", (randn(4, 9, 8), randn(6, 4, 3, 3), randn(6))),
    "padding in a word": (
        "F.conv2d(x, w, b, padding='same')",
        (randn(2, 4, 9, 8), randn(6, 4, 3, 3), randn(6)),
    ),
    "complex": (
        "F.conv2d(x, w)",
        (
            randn(2, 4, 9, 8, dtype=torch.complex64),
            randn(6, 4, 3, 3, dtype=torch.complex64),
            randn(6),
        ),
    ),
}


@pytest.mark.parametrize("name", [*CALLS, *OTHERS])
@pytest.mark.slow
def test_the_call_is_the_same(name: str) -> None:
    text, args = (CALLS | OTHERS)[name]
    module, model, candidate = drop_in(SOURCE.format(text), *args, recipes=("cudnn_benchmark",))
    assert (" = dvk_convolution(" in candidate.source) is (name in CALLS)
    with torch.no_grad():
        given, want = module.ModelNew().eval()(*args), model(*args)
    assert torch.equal(given, want) and given.stride() == want.stride()


def test_flags_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(torch, "_convolution", lambda *operands: seen.append(operands[9:]))
    with torch.backends.cudnn.flags(
        enabled=False, deterministic=True, benchmark=False, allow_tf32=False
    ):
        dvk_convolution(randn(1), randn(1), None, [1], [0], [1], False, [0], 1)
    dvk_convolution(randn(1), randn(1), None, [1], [0], [1], False, [0], 1)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    dvk_convolution(randn(1), randn(1), None, [1], [0], [1], False, [0], 1)
    cudnn = torch.backends.cudnn
    rest = cudnn.enabled, cudnn.allow_tf32
    assert seen == [
        (True, True, False, False),
        (True, cudnn.deterministic, *rest),
        (True, True, *rest),
    ]


def test_it_is_for_gpus_and_for_remaining_convolutions() -> None:
    graph = capture(lambda x, w: F.conv2d(x, w), randn(2, 4, 9, 8), randn(6, 4, 3, 3)).graph
    assert "cudnn_benchmark" in applicable(
        graph, "cuda", "triton"
    ) and "cudnn_benchmark" not in applicable(graph, "cpu", "cpp")
    assert "cudnn_benchmark" not in applicable(
        capture(F.linear, randn(2, 4), randn(3, 4)).graph, "cuda", "triton"
    )
    _, _, candidate = drop_in(SOURCE.format("F.conv2d(x, w, b)"), *CALLS["2d, nothing given"][1])
    assert "dvk_convolution" not in candidate.source
