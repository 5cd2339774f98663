"""Attention by hand whose scores stay in registers: decoding with lengths, grouped queries, caps and windows, and whole sequences."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.composer.triton_cases import HALF, Case, kinds, rand

ATTENTION = kinds("attention")


def decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """One query a sequence, grouped; places behind a sequence's length are masked."""
    b, h, d = q.shape
    grouped = q.view(b, k.shape[1], h // k.shape[1], d)
    scores = torch.matmul(grouped, k.transpose(-1, -2)).float() / d**0.5
    places = torch.arange(k.shape[2], device=q.device)
    scores = scores.masked_fill(places >= lengths[:, None, None, None], float("-inf"))
    return torch.matmul(torch.softmax(scores, -1).to(v.dtype), v).view(b, h, d)


def capped(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """With a soft cap and a sliding window, of keys repeated for their queries."""
    b, h, d = q.shape
    k, v = (t.repeat_interleave(h // t.shape[1], 1) for t in (k, v))
    scores = torch.matmul(q[:, :, None], k.transpose(-1, -2)) * d**-0.5
    scores = 5.0 * torch.tanh(scores / 5.0)
    places = torch.arange(k.shape[2], device=q.device)
    ends = lengths[:, None, None, None]
    outside = (places >= ends) | (places < ends - 9)
    return torch.matmul(torch.softmax(scores.masked_fill(outside, float("-inf")), -1), v)[:, :, 0]


def slopes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """Whole sequences, causal, with a linear bias a head and an epilogue."""
    n = q.shape[2]
    i, j = torch.arange(n, device=q.device)[:, None], torch.arange(n, device=q.device)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + slope[:, None, None] * (j - i)
    weights = torch.softmax(scores.masked_fill(j > i, float("-inf")), -1)
    return F.relu(weights @ v) + 1


def empty(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Rows without a key are NaN, as eager code has them."""
    scores = torch.where(mask, q @ k.transpose(-1, -2), float("-inf"))
    return torch.nan_to_num(torch.softmax(scores, -1) @ v, nan=7.0)


def library(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """PyTorch's attention, of grouped queries under a mask; rows without a key are 0."""
    return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2) * 2


def single(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """With an epilogue; one query a head needs no split of few keys."""
    return F.relu(torch.softmax(q @ k.mT, -1) @ v) + 1


def twice(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Two attentions that share a product."""
    return torch.softmax(torch.softmax(torch.tanh(q @ k.mT), -1) @ v, -1) @ w


def over_all(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The softmax is over queries and keys."""
    scores = q @ k.mT
    return torch.softmax(scores.flatten(-2), -1).unflatten(-1, scores.shape[-2:]) @ v


def over_parts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The softmax is over a quarter of the keys at once."""
    return torch.softmax((q @ k.mT).unflatten(-1, (4, -1)), -1).flatten(-2) @ v


def over_queries(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT, -2) @ v


def cache(b: int, h: int, g: int, n: int, d: int, dtype: torch.dtype) -> list[torch.Tensor]:
    lengths = torch.randint(1, n + 1, (b,))
    return [rand(b, h, d, dtype=dtype), *(rand(b, g, n, d, dtype=dtype) for _ in "kv"), lengths]


def holes(rows: int = 20) -> torch.Tensor:
    mask = torch.rand(rows, 70) > 0.5
    mask[3] = False
    return mask


ATTENTION_CASES: dict[str, Case] = {
    "attention_decode": Case(decode, lambda: cache(2, 4, 2, 140, 16, HALF), 4e-3, ATTENTION),
    "attention_capped": Case(
        capped, lambda: cache(2, 4, 2, 70, 16, torch.float32), 8e-6, ATTENTION
    ),
    "attention_slopes": Case(
        slopes, lambda: [*(rand(2, 3, 33, 16) for _ in "qkv"), rand(3)], 8e-6, ATTENTION
    ),
    "attention_empty": Case(
        empty, lambda: [rand(2, 20, 24), *(rand(2, 70, 24) for _ in "kv"), holes()], 8e-6, ATTENTION
    ),
    "attention_library": Case(
        library,
        lambda: [rand(2, 6, 5, 16), *(rand(2, 3, 70, 16) for _ in "kv"), holes(5)],
        8e-6,
        ATTENTION,
    ),
    "attention_biased": Case(
        library,
        lambda: [rand(2, 6, 1, 16), *(rand(2, 3, 70, 16) for _ in "kv"), rand(6, 1, 70)],
        8e-6,
        ATTENTION,
    ),
    "attention_single": Case(
        single, lambda: [rand(2, 4, 1, 32), *(rand(2, 4, 100, 32) for _ in "kv")], 8e-6, ATTENTION
    ),
    "attention_twice": Case(
        twice,
        lambda: [rand(2, 20, 24), *(rand(2, 16, 24) for _ in "kv"), rand(2, 24, 8)],
        8e-6,
        ATTENTION,
    ),
    "attention_causal": Case(causal, lambda: [rand(2, 3, 40, 16) for _ in "qkv"], 8e-6, ATTENTION),
}
