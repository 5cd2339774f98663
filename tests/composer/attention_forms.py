"""Spellings of scaled dot-product attention that become one call, and functions that only look like it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

INF = float("inf")
randn = torch.randn


def some(*shape: int, empty: bool = True) -> torch.Tensor:
    """Positions to mask, reproducible; with `empty`, a whole row among them, and else none."""
    masked = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.4
    masked[..., 1, :] = empty
    masked[..., 0] &= empty
    return masked


def heads(*lead: int, rows: int = 9, columns: int = 12, width: int = 8) -> tuple[torch.Tensor, ...]:
    return tuple(randn(*lead, n, width) for n in (rows, columns, columns))


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.transpose(-2, -1) * 0.3


def weighed(s: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(s, -1) @ v


def earlier(rows: int, columns: int) -> torch.Tensor:
    return torch.ones(rows, columns, dtype=torch.bool).triu(1)


def windows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    s = torch.bmm(q, k.transpose(1, 2)).view(2, 3, 9, 12) + bias
    return torch.bmm(s.softmax(-1).view(6, 9, 12), v)


def halved(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (
        (scores(q, k).softmax(-1, dtype=torch.float32).to(q.dtype) @ v)
        .transpose(1, 2)
        .reshape(2, 9, -1)
    )


FORMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "plain": (lambda q, k, v: weighed(q @ k.mT, v), heads(2, 3)),
    "scaled behind": (lambda q, k, v: weighed(scores(q, k), v), heads(2, 3)),
    "divided": (
        lambda q, k, v: weighed(torch.matmul(q, k.permute(0, 1, 3, 2)) / math.sqrt(8), v),
        heads(2, 3),
    ),
    "scaled before": (lambda q, k, v: weighed((q * 0.5) @ (k.mT / 2), v), heads(2, 3)),
    "keys that come transposed": (
        lambda q, k, v: weighed(q @ k * 0.3, v),
        (randn(2, 3, 9, 8), randn(2, 3, 8, 12), randn(2, 3, 12, 8)),
    ),
    "one head": (lambda q, k, v: weighed(torch.bmm(q, k.transpose(1, 2)), v), heads(4)),
    "no batch": (lambda q, k, v: weighed(q @ k.T, v), heads()),
    "another width of values": (
        lambda q, k, v: weighed(scores(q, k), v),
        (*heads(2, 3)[:2], randn(2, 3, 12, 5)),
    ),
    "keys of one head": (
        lambda q, k, v: weighed(scores(q, k), v),
        (randn(2, 3, 9, 8), randn(2, 1, 12, 8), randn(12, 8)),
    ),
    "one row": (lambda q, k, v: weighed(scores(q, k), v), heads(2, 3, rows=1)),
    "einsum": (
        lambda q, k, v: torch.einsum(
            "bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).softmax(3), v
        ),
        heads(2, 3),
    ),
    "einsum of tokens": (
        lambda q, k, v: torch.einsum(
            "bhqk,bkhd->bqhd", (torch.einsum("bqhd,bkhd->bhqk", q, k) / 4).softmax(-1), v
        ),
        (randn(2, 9, 3, 8), randn(2, 12, 3, 8), randn(2, 12, 3, 8)),
    ),
    "einsum turned around": (
        lambda q, k, v: torch.einsum(
            "bjd,bij->bid", v, torch.einsum("bjd,bid->bij", k, q).softmax(-1)
        ),
        heads(4),
    ),
    "inactive dropout": (
        lambda q, k, v: F.dropout(scores(q, k).softmax(-1), 0.5, False) @ v,
        heads(2, 3),
    ),
    "transposed back": (
        lambda q, k, v: weighed(scores(q, k), v).transpose(1, 2).contiguous().view(2, 9, 24) * 2,
        heads(2, 3),
    ),
    "doubles": (lambda q, k, v: weighed(scores(q, k), v), tuple(t.double() for t in heads(2, 3))),
    "halves with a softmax in float32": (halved, tuple(t.bfloat16() for t in heads(2, 3))),
    "halves cast by hand": (
        lambda q, k, v: scores(q, k).float().softmax(-1).type_as(q) @ v,
        tuple(t.half() for t in heads(2, 3)),
    ),
    "a mask that is added": (
        lambda q, k, v, m: weighed(scores(q, k) + m, v),
        (*heads(2, 3), randn(9, 12)),
    ),
    "an added mask with empty rows": (
        lambda q, k, v, m: weighed(m + scores(q, k), v),
        (*heads(2, 3), torch.where(some(2, 1, 9, 12), -INF, 0.5)),
    ),
    "an added mask of -1e9": (
        lambda q, k, v, m: weighed(scores(q, k) + m, v),
        (*heads(2, 3), torch.where(some(2, 1, 9, 12), -1e9, 0.0)),
    ),
    "two masks": (
        lambda q, k, v, m, n: weighed((scores(q, k) + m).masked_fill(n, -INF), v),
        (*heads(2, 3), randn(3, 1, 12), some(9, 12)),
    ),
    "filled": (
        lambda q, k, v, m: weighed(scores(q, k).masked_fill(m, -INF), v),
        (*heads(2, 3), some(2, 1, 9, 12)),
    ),
    "filled, then scaled": (
        lambda q, k, v, m: weighed((q @ k.mT).masked_fill(m == 0, -INF) / 3, v),
        (*heads(2, 3), (~some(9, 12)).float()),
    ),
    "filled in place": (
        lambda q, k, v, m: weighed(scores(q, k).masked_fill_(~m, -INF), v),
        (*heads(4), ~some(4, 9, 12)),
    ),
    "keys that are padding": (
        lambda q, k, v, m: weighed(scores(q, k).masked_fill(m[:, None, None, :], -INF), v),
        (*heads(2, 3), some(2, 12)),
    ),
    "rows that are padding": (
        lambda q, k, v, m: weighed(scores(q, k).masked_fill(m[:, :, None], -INF), v),
        (*heads(2), some(2, 9)),
    ),
    "where": (
        lambda q, k, v, m: weighed(torch.where(m, scores(q, k), -INF), v),
        (*heads(2, 3), ~some(9, 12)),
    ),
    "where the other way": (
        lambda q, k, v, m: weighed(torch.where(m, -INF, scores(q, k)), v),
        (*heads(2, 3), some(9, 12)),
    ),
    "where a tensor of one": (
        lambda q, k, v, m: weighed(torch.where(m, scores(q, k), torch.tensor(-1e9)), v),
        (*heads(2, 3), ~some(9, 12)),
    ),
    "filled with -1e9": (
        lambda q, k, v, m: weighed(scores(q, k).masked_fill(m, -1e9), v),
        (*heads(2, 3), some(2, 1, 9, 12)),
    ),
    "filled with the least half": (
        lambda q, k, v, m: weighed(scores(q, k).masked_fill(m, torch.finfo(q.dtype).min), v),
        (*(t.half() for t in heads(2, 3)), some(2, 1, 9, 12)),
    ),
    "causal": (
        lambda q, k, v: weighed(scores(q, k).masked_fill(earlier(9, 12), -INF), v),
        heads(2, 3),
    ),
    "causal by order": (
        lambda q, k, v: weighed(
            torch.where(torch.arange(9)[:, None] >= torch.arange(9), scores(q, k), -INF), v
        ),
        heads(2, 3, columns=9),
    ),
    "causal with -1e9": (
        lambda q, k, v: weighed(scores(q, k).masked_fill(earlier(9, 12), -1e9), v),
        heads(2, 3),
    ),
    "causal and biased": (
        lambda q, k, v, b: weighed((scores(q, k) + b).masked_fill(earlier(9, 12), -INF), v),
        (*heads(2, 3), randn(3, 9, 12)),
    ),
    "heads in groups": (
        lambda q, k, v: weighed(scores(q, k.unsqueeze(2)), v.unsqueeze(2)),
        (randn(2, 2, 3, 9, 8), *heads(2, 2)[1:]),
    ),
    "heads in groups, masked": (
        lambda q, k, v, m, n: weighed((scores(q, k) + n).masked_fill(m, -INF), v),
        (*heads(2, 2, 3), some(2, 1, 1, 9, 12), randn(2, 3, 9, 12)),
    ),
    "a scale that is a tensor": (
        lambda q, k, v, c: weighed(q @ k.mT * c, v),
        (*heads(2, 3), torch.tensor(-0.3)),
    ),
    "divided by a tensor of one, masked": (
        lambda q, k, v, c, m: weighed((q @ k.mT / c).masked_fill(m, -INF), v),
        (*heads(2, 3), torch.tensor([2.5]), some(2, 1, 9, 12)),
    ),
    "divided by a constant": (
        lambda q, k, v: weighed(q @ k.mT / torch.tensor([2.5]), v),
        heads(2, 3),
    ),
    "a temperature of each head": (
        lambda q, k, v, c, m: weighed((c.exp() * (q @ k.mT)) * 0.5 + m, v),
        (*heads(2, 3), randn(3, 1, 1), randn(9, 12)),
    ),
    "a temperature of each of a batch's heads": (
        lambda q, k, v, c: weighed(q @ k.mT * c, v),
        (*heads(4), randn(4, 1, 1)),
    ),
    "halves scaled by a float": (
        lambda q, k, v, c: weighed(q @ k.mT * c, v),
        (*(t.half() for t in heads(2, 3)), torch.tensor(0.3)),
    ),
    "baddbmm": (
        lambda q, k, v, m: weighed(torch.baddbmm(m, q, k.mT, beta=1, alpha=0.3), v),
        (*heads(4), randn(4, 1, 12)),
    ),
    "baddbmm, filled": (
        lambda q, k, v, m, n: weighed(torch.baddbmm(m, q, k.mT, alpha=0.3).masked_fill(n, -INF), v),
        (*heads(4), randn(1, 12), some(4, 9, 12)),
    ),
    "baddbmm of nothing": (
        lambda q, k, v: weighed(
            torch.baddbmm(torch.empty(4, 9, 12), q, k.mT, beta=0, alpha=0.3), v
        ),
        heads(4),
    ),
    "a view of scores between": (windows, (*heads(6), randn(3, 9, 12))),
}
REFUSED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "weights are returned": (lambda q, k, v: ((w := scores(q, k).softmax(-1)) @ v, w), heads(2, 3)),
    "scores are read twice": (
        lambda q, k, v: weighed(s := scores(q, k), v) * s.amax(),
        heads(2, 3),
    ),
    "another dimension": (lambda q, k, v: scores(q, k).softmax(-2) @ v, heads(2, 3)),
    "a negative scale": (lambda q, k, v: weighed(q @ k.mT * -0.3, v), heads(2, 3)),
    "a scale of zero": (lambda q, k, v: weighed(q @ k.mT * 0, v), heads(2, 3)),
    "a scale of each row": (
        lambda q, k, v, c: weighed(q @ k.mT * c, v),
        (*heads(2, 3), randn(9, 1)),
    ),
    "a scale of another type": (
        lambda q, k, v, c: (q @ k.mT * c).softmax(-1).half() @ v,
        (*(t.half() for t in heads(2, 3)), randn(1)),
    ),
    "a scale that widens": (
        lambda q, k, v, c: weighed(q @ k.mT * c, v),
        (*heads(3), randn(2, 1, 1, 1)),
    ),
    "a scale of each of many heads": (
        lambda q, k, v, c: weighed(q @ k.mT * c, v),
        (*heads(2, 2, 3), randn(2, 3, 1, 1)),
    ),
    "scores divide": (lambda q, k, v, c: weighed(c / (q @ k.mT), v), (*heads(2, 3), randn(()))),
    "scaled by a tensor after a mask": (
        lambda q, k, v, m, c: weighed((q @ k.mT).masked_fill(m, -INF) * c, v),
        (*heads(2, 3), some(9, 12), torch.tensor(0.3)),
    ),
    "scaled by a tensor after baddbmm": (
        lambda q, k, v, m, c: weighed(torch.baddbmm(m, q, k.mT) * c, v),
        (*heads(4), randn(9, 12), torch.tensor(0.3)),
    ),
    "scaled after baddbmm": (
        lambda q, k, v, m: weighed(torch.baddbmm(m, q, k.mT) * 0.3, v),
        (*heads(4), randn(9, 12)),
    ),
    "baddbmm with a scaled mask": (
        lambda q, k, v, m: weighed(torch.baddbmm(m, q, k.mT, beta=2), v),
        (*heads(4), randn(9, 12)),
    ),
    "baddbmm of values": (
        lambda q, k, v, m: torch.baddbmm(m, scores(q, k).softmax(-1), v),
        (*heads(4), randn(9, 8)),
    ),
    "a scale written in place": (
        lambda q, k, v, c: (weighed(q @ k.mT * c, v), c.add_(1)),
        (*heads(2, 3), randn(())),
    ),
    "scaled after an added mask": (
        lambda q, k, v, m: weighed((q @ k.mT + m) / 3, v),
        (*heads(2, 3), randn(9, 12)),
    ),
    "a number that scores may reach": (
        lambda q, k, v, m: weighed(scores(q, k).masked_fill(m, -1e4), v),
        (*heads(2, 3), some(9, 12)),
    ),
    "-1e9 of doubles": (
        lambda q, k, v, m: weighed(scores(q, k).masked_fill(m, -1e9), v),
        (*(t.double() for t in heads(2, 3)), some(9, 12)),
    ),
    "a positive fill": (
        lambda q, k, v, m: weighed(scores(q, k).masked_fill(m, 1e9), v),
        (*heads(2, 3), some(9, 12)),
    ),
    "a fill that is infinite in halves": (
        lambda q, k, v, m: weighed(torch.where(m, scores(q, k), -1e9), v),
        (*(t.half() for t in heads(2, 3)), ~some(9, 12)),
    ),
    "a fill that overflows afterwards": (
        lambda q, k, v, m: weighed(
            scores(q, k).masked_fill(m, torch.finfo(torch.float32).min) * 8, v
        ),
        (*heads(2, 3), some(9, 12)),
    ),
    "a fill that overflows in a narrower type": (
        lambda q, k, v, m: weighed(scores(q, k).float().masked_fill(m, -1e9).half(), v),
        (*(t.half() for t in heads(2, 3)), some(9, 12)),
    ),
    "a softmax in a narrower type": (
        lambda q, k, v, m: (
            torch.softmax(scores(q, k).float().masked_fill(m, -1e9), -1, dtype=torch.float16) @ v
        ),
        (*(t.half() for t in heads(2, 3)), some(9, 12)),
    ),
    "values with one more dimension": (lambda q, k, v: weighed(scores(q, k), v[None]), heads(2, 3)),
    "a finite fill among masks": (
        lambda q, k, v, m, n: weighed(scores(q, k).masked_fill(m, -1e9) + n, v),
        (*heads(2, 3), some(9, 12), randn(9, 12)),
    ),
    "a mask of another type": (
        lambda q, k, v, m: (scores(q, k) + m).softmax(-1).half() @ v,
        (*(t.half() for t in heads(2, 3)), randn(9, 12)),
    ),
    "narrower weights": (lambda q, k, v: scores(q, k).softmax(-1).half() @ v.half(), heads(2, 3)),
    "active dropout": (
        lambda q, k, v: F.dropout(scores(q, k).softmax(-1), 0.5, True) @ v,
        heads(2, 3),
    ),
    "something between": (lambda q, k, v: weighed(scores(q, k).tanh(), v), heads(2, 3)),
    "weights changed": (lambda q, k, v: scores(q, k).softmax(-1).square() @ v, heads(2, 3)),
    "a mask of some of many heads": (
        lambda q, k, v, m: weighed(scores(q, k) + m, v),
        (*heads(2, 2, 3), randn(2, 1, 9, 12)),
    ),
    "rows and columns exchanged": (
        lambda q, k, v: scores(q, k).softmax(-1).mT @ v,
        (*heads(2, 3)[:2], randn(2, 3, 9, 8)),
    ),
    "a mask that widens": (
        lambda q, k, v, m: weighed(scores(q, k) + m, v),
        (*heads(), randn(2, 3, 9, 12)),
    ),
    "values of more batches": (
        lambda q, k, v: weighed(scores(q, k), v),
        (*heads()[:2], randn(2, 3, 12, 8)),
    ),
    "a product that broadcasts": (
        lambda q, k, v: torch.einsum("bid,bjd->bij", q, k).softmax(-1) @ v,
        (randn(2, 9, 1), *heads(2)[1:]),
    ),
    "no attention": (lambda q, k, v: (q @ k.mT) @ v, heads(2, 3)),
    "a library call": (F.scaled_dot_product_attention, heads(2, 3)),
    "memory order seen": (
        lambda q, k, v: weighed(scores(q, k), v).as_strided((3, 3), (1, 5)),
        heads(2, 3),
    ),
    "queries written in place": (
        lambda q, k, v: (weighed(scores(q, k), v), q.add_(1)),
        heads(2, 3),
    ),
}
