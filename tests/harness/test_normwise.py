"""Algorithms with fewer multiplications pass at the edge of the tolerance; lower precision does not."""

from __future__ import annotations

import torch

from dvk.harness.checking import compare, normwise
from dvk.harness.checking.compare import ExpectedLeaf
from dvk.harness.checking.tolerance import Errors, class_of

FP32 = class_of("fp32", {"float32"})


def made(size: int = 256) -> tuple[torch.Tensor, torch.Tensor, ExpectedLeaf]:
    """Operands of a product with a few large elements, and what the judge expects of it."""
    torch.manual_seed(3)
    a, b = torch.randn(size, size), torch.randn(size, size)
    a[::37, 5], b[7, ::41] = 200.0, -150.0
    truth = (a.double() @ b.double()).float()
    scale, rms, finite = compare.scales(truth)
    return (
        a,
        b,
        ExpectedLeaf(
            "output",
            truth,
            None,
            scale,
            rms,
            Errors(5e-6, 3e-5),
            Errors(2e-7, 2e-6),
            Errors(2e-4, 3e-3),
            finite=finite,
        ),
    )


def strassen(a: torch.Tensor, b: torch.Tensor, levels: int) -> torch.Tensor:
    if not levels:
        return a @ b
    a11, a12, a21, a22 = (part for rows in a.chunk(2) for part in rows.chunk(2, 1))
    b11, b12, b21, b22 = (part for rows in b.chunk(2) for part in rows.chunk(2, 1))
    pairs = [
        (a11 + a22, b11 + b22),
        (a21 + a22, b11),
        (a11, b12 - b22),
        (a22, b21 - b11),
        (a11 + a12, b22),
        (a21 - a11, b11 + b12),
        (a12 - a22, b21 + b22),
    ]
    m1, m2, m3, m4, m5, m6, m7 = (strassen(x, y, levels - 1) for x, y in pairs)
    return torch.cat(
        [torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1), torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)]
    )


def test_strassens_product_is_at_the_edge() -> None:
    a, b, want = made()
    got = strassen(a, b, 2)
    assert not compare.values(got, want)[0].within(want.admitted)
    assert normwise.spread(got, want, FP32) is not None


def test_lower_precision_is_not() -> None:
    a, b, want = made()

    def ten_bits(x: torch.Tensor) -> torch.Tensor:
        return (x.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)

    assert normwise.spread(ten_bits(a) @ ten_bits(b), want, FP32) is None
    assert normwise.spread((a.half().float() @ b), want, FP32) is None


def test_small_elements_that_are_wrong_are_not() -> None:
    _, _, want = made()
    got = want.same.clone()
    got[3, 4] += 0.01 * want.rms
    assert normwise.spread(got, want, FP32) is None
