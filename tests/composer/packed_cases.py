"""Matmuls with weights of a few bits, packed in words as modules unpack them: along k and across results, with scales and zero points."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.composer.triton_cases import HALF, Case, kinds, rand

GROUP = 32


def words(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Words of eight along k, with fractional zero points."""
    shifts = torch.arange(0, 32, 4, device=q.device, dtype=torch.int32)
    n, g = s.shape
    w = ((q.unsqueeze(-1) >> shifts) & 0xF).reshape(n, g, -1).to(x.dtype)
    return F.linear(x, ((w - z.unsqueeze(-1)) * s.unsqueeze(-1)).reshape(n, -1))


def pairs(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Bytes of two along k, symmetric, with an epilogue."""
    low, high = (q & 0xF).to(x.dtype) - 8, (q >> 4).to(x.dtype) - 8
    w = torch.stack((low, high), dim=-1).reshape(*s.shape, -1)
    return F.silu(x @ (w * s[..., None]).reshape(q.shape[0], -1).t()) * 2


def gated(
    x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, r: torch.Tensor, t: torch.Tensor
) -> torch.Tensor:
    """Two products with one operand, as in a gated MLP."""
    up = x @ ((_bytes(r, x) - 8).reshape(*t.shape, -1) * t[..., None]).flatten(1).t()
    return F.silu(x @ ((_bytes(q, x) - 8).reshape(*s.shape, -1) * s[..., None]).flatten(1).t()) * up


def _bytes(q: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.stack(((q & 0xF).to(x.dtype), (q >> 4).to(x.dtype)), -1)


def halves(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Bytes whose low nibbles are the first half of k."""
    w = torch.cat((q & 0xF, q >> 4), dim=-1).to(x.dtype) - 8.0
    return F.linear(x, (w.view(*s.shape, -1) * s.unsqueeze(-1)).flatten(1))


def signed(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Four signed elements of two bits a byte, by arithmetic shifts, a scale a result."""
    parts = [((q.to(torch.int32) << (30 - 2 * n)) >> 30).to(x.dtype) for n in range(4)]
    return F.linear(x, torch.stack(parts, -1).flatten(1)) * s


def gptq(x: torch.Tensor, q: torch.Tensor, qz: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Words along k of neighbouring results; packed zero points, one less than they are."""
    shifts = torch.arange(0, 32, 4, device=q.device, dtype=torch.int32)
    g, n = s.shape
    z = ((qz.unsqueeze(2) >> shifts) & 15).reshape(g, 1, n) + 1
    w = ((q.unsqueeze(1) >> shifts[None, :, None]) & 15).reshape(g, -1, n)
    return torch.matmul(x, (s.unsqueeze(1) * (w - z)).reshape(-1, n).to(x.dtype))


def awq(x: torch.Tensor, q: torch.Tensor, qz: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Words of eight results, in another order."""
    order = torch.arange(0, 32, 4, device=q.device, dtype=torch.int32).view(2, 4).t().flatten()
    g, n = s.shape
    w = ((q[:, :, None] >> order) & 15).view(-1, n)
    z = ((qz[:, :, None] >> order) & 15).view(g, n)
    size = w.shape[0] // g
    return x @ ((w - z.repeat_interleave(size, 0)) * s.repeat_interleave(size, 0)).to(x.dtype)


def wrapped(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> Any:
    """Differences of unsigned bytes, which wrap below 0, and sums of signed bytes, which wrap above 127."""
    w = torch.stack((q & 0xF, q >> 4), -1).reshape(*s.shape, -1)
    signed = torch.stack((q & 0xF, q & 7), -1).reshape(*s.shape, -1).to(torch.int8)
    made = (w - 8, w + (-300), w - z[..., None], signed + 120)
    return tuple(x @ (m.to(x.dtype) * s[..., None]).flatten(1).t() for m in made)


def word(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31 - 1, shape, dtype=torch.int32)


def byte(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def zeros(*shape: int) -> torch.Tensor:
    return torch.randint(0, 31, shape) / 2


UNPACKED = kinds("unpacked")
LANES = kinds("unpacked", "lanes")
BRAIN = torch.bfloat16
PACKED_CASES: dict[str, Case] = {
    "packed_words": Case(
        words, lambda: [rand(1, 96), word(20, 12), rand(20, 3), zeros(20, 3)], 4e-6, UNPACKED
    ),
    "packed_words_of_rows": Case(
        words, lambda: [rand(3, 64), word(8, 8), rand(8, 2), zeros(8, 2)], 4e-6, UNPACKED
    ),
    "packed_pairs": Case(pairs, lambda: [rand(2, 64), byte(12, 32), rand(12, 2)], 4e-6, UNPACKED),
    "packed_wrapped": Case(
        wrapped, lambda: [rand(2, 64), byte(12, 32), rand(12, 2), byte(12, 2) & 15], 4e-6, UNPACKED
    ),
    "packed_halves": Case(halves, lambda: [rand(2, 64), byte(12, 32), rand(12, 4)], 4e-6, UNPACKED),
    "packed_signed": Case(signed, lambda: [rand(1, 64), byte(12, 16), rand(12)], 4e-6, UNPACKED),
    "packed_gptq": Case(
        gptq,
        lambda: [rand(2, 192, dtype=HALF), word(24, 16), word(3, 2), rand(3, 16, dtype=HALF) * 0.1],
        4e-3,
        UNPACKED,
    ),
    "packed_lanes": Case(
        words,
        lambda: [
            rand(3, 512, dtype=BRAIN),
            word(32, 64),
            rand(32, 4, dtype=BRAIN),
            zeros(32, 4).to(BRAIN),
        ],
        2e-2,
        LANES,
        interpreted=LANES,
    ),
    "packed_lanes_of_pairs": Case(
        pairs,
        lambda: [rand(8, 256, dtype=BRAIN), byte(16, 128), rand(16, 1, dtype=BRAIN)],
        2e-2,
        LANES,
        interpreted=LANES,
    ),
    "packed_lanes_of_two": Case(
        gated,
        lambda: [
            rand(2, 256, dtype=BRAIN),
            byte(32, 128),
            rand(32, 2, dtype=BRAIN) / 9,
            byte(32, 128),
            rand(32, 2, dtype=BRAIN) / 9,
        ],
        2e-2,
        LANES,
        interpreted=LANES,
    ),
    "packed_awq": Case(
        awq, lambda: [rand(1, 96), word(96, 2), word(3, 2), rand(3, 16)], 4e-6, UNPACKED
    ),
}
