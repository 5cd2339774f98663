"""Attention by hand whose scores stay in registers: decoding with lengths, grouped queries, caps and windows, and whole sequences."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.composer.triton_cases import HALF, Case, kinds, rand

ATTENTION = kinds("attention")
ENDLESS, LOWEST = 2**31 - 1, torch.finfo(torch.float32).min


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


def repeated(t: torch.Tensor, times: int) -> torch.Tensor:
    """Keys or values for each of their queries' heads, as a copy."""
    b, g, n, d = t.shape
    return t[:, :, None].expand(b, g, times, n, d).reshape(b, g * times, n, d)


def sliding(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Whole sequences: grouped, capped, causal, in a sliding window."""
    k, v = (repeated(t, q.shape[1] // t.shape[1]) for t in (k, v))
    scores = torch.tanh(q @ k.mT * 0.25 / 3.0) * 3.0
    places = torch.arange(q.shape[2], device=q.device)
    i, j = places[:, None], places
    scores = scores.masked_fill((j > i) | (j <= i - 41), float("-inf"))
    return torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v


def behind_cache(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The queries are the last of the keys."""
    past, n = k.shape[2] - q.shape[2], k.shape[2]
    i, j = torch.arange(past, n, device=q.device)[:, None], torch.arange(n, device=q.device)
    return torch.softmax((q @ k.mT / 4.0).masked_fill(i < j, float("-inf")), -1) @ v


def padded(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Whole sequences of several lengths; places behind them are masked, and one sequence is empty: its rows are NaN."""
    places = torch.arange(k.shape[2], device=q.device)
    seen = (places < lengths[:, None])[:, None, None]
    weights = torch.softmax((q @ k.mT).masked_fill(seen.logical_not(), float("-inf")), -1)
    return torch.nan_to_num(weights @ v, nan=7.0)


def endless(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Keys up to a place that memory holds, the largest integer for all of them, in a window as large."""
    places = torch.arange(k.shape[2], device=q.device)
    i, j = places[:, None], places
    hidden = (j > last[:, None, None, None]) | (j - i >= 2**31 - 1)
    return torch.softmax((q @ k.mT / 4.0).masked_fill(hidden, float("-inf")), -1) @ v


def lowered(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A bias of each batch: where it is the lowest number, it leaves nothing of the scores, and all weights are equal."""
    return torch.softmax(q @ k.mT * 0.25 + bias[:, None, None, None], -1) @ v


def nearby(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A window to both sides, and a triangle of ones whose corner hides some keys."""
    n = q.shape[2]
    places = torch.arange(n, device=q.device)
    near = (places[:, None] - places).abs() < 37
    scores = torch.where(near, q @ k.mT / 4.0, float("-inf"))
    corner = torch.ones(n, n, device=q.device).tril(20)
    return torch.softmax(scores.masked_fill(corner == 0, float("-inf")), -1) @ v


def lowest(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """An added mask of the lowest number; a row that is masked wholly has equal weights."""
    return torch.softmax((q @ k.mT) * 0.25 + torch.where(mask, 0.0, LOWEST), -1) @ v


def layer(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """With projections; keys are rotated and then repeated in memory, values are repeated by index."""
    b, n, _ = x.shape
    q, k, v = (F.linear(x, w).unflatten(-1, (-1, 16)).transpose(1, 2) for w in weights)
    turned = torch.cat((-k[..., 8:], k[..., :8]), -1)
    places = torch.arange(n, device=x.device)
    k, v = repeated(k * 0.8 + turned * 0.6, 2), repeated(v, 2)
    scores = (q @ k.mT / 4.0).masked_fill(places[:, None] < places, float("-inf"))
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)


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
    "attention_sliding": Case(
        sliding,
        lambda: [rand(1, 4, 150, 16), *(rand(1, 2, 150, 16) for _ in "kv")],
        8e-6,
        ATTENTION,
    ),
    "attention_sliding_half": Case(
        sliding,
        lambda: [rand(1, 4, 128, 16, dtype=HALF), *(rand(1, 2, 128, 16, dtype=HALF) for _ in "kv")],
        4e-3,
        ATTENTION,
    ),
    "attention_behind_cache": Case(
        behind_cache,
        lambda: [rand(2, 2, 70, 24), *(rand(2, 2, 201, 24) for _ in "kv")],
        8e-6,
        ATTENTION,
    ),
    "attention_padded": Case(
        padded,
        lambda: [*(rand(3, 2, 140, 16) for _ in "qkv"), torch.tensor([140, 70, 0])],
        8e-6,
        ATTENTION,
    ),
    "attention_endless": Case(
        endless,
        lambda: [*(rand(3, 2, 70, 16) for _ in "qkv"), torch.tensor([ENDLESS, 40, 0]).int()],
        8e-6,
        ATTENTION,
    ),
    "attention_endless_in_64_bits": Case(
        endless,
        lambda: [*(rand(3, 2, 70, 16) for _ in "qkv"), torch.tensor([2**63 - 1, ENDLESS, 7])],
        8e-6,
        ATTENTION,
    ),
    "attention_lowered": Case(
        lowered,
        lambda: [*(rand(3, 2, 70, 16) for _ in "qkv"), torch.tensor([LOWEST, 0.0, 1e30])],
        8e-6,
        ATTENTION,
    ),
    "attention_nearby": Case(nearby, lambda: [rand(1, 2, 150, 16) for _ in "qkv"], 8e-6, ATTENTION),
    "attention_layer": Case(
        layer,
        lambda: [rand(2, 70, 32), *(rand(n, 32) / 32**0.5 for n in (64, 32, 32))],
        8e-6,
        ATTENTION,
    ),
    "attention_lowest": Case(
        lowest,
        lambda: [rand(2, 20, 24), *(rand(2, 70, 24) for _ in "kv"), holes()],
        8e-6,
        ATTENTION,
    ),
    "attention_causal": Case(causal, lambda: [rand(2, 3, 40, 16) for _ in "qkv"], 8e-6, ATTENTION),
}
