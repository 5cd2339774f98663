"""Log-probabilities of given tokens, with gradients when they are enabled.

Rows of like length share a pass of the transformers module, padded on the right: a causal model's real tokens never see what
follows them, so no attention mask is needed and the fast causal kernel is used. Lengths define the valid tokens; a pad is
never recognised by its id. The head, whose logits would outweigh everything else, is applied to completion positions only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dvk.backbone import Scores, ScoringRow
from dvk.backbone.decoding.forward import ARCHITECTURES, unwrapped

MOST, LEAST = 4, 1e-3
"""Alternatives of a position, and their least probability: less likely ones are hardly ever right."""
HEAD_LOGITS = 1 << 28
"""Logits computed at once, 1 GiB in fp32; with gradients they are computed again in the backward pass rather than kept."""


def micro_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices in groups of similar length, each of at most `budget` tokens with its padding (but of one row at least)."""
    groups: list[list[int]] = []
    for i in sorted(
        range(len(lengths)), key=lambda i: -lengths[i]
    ):  # longest first: memory runs out at once or never
        if groups and lengths[groups[-1][0]] * (len(groups[-1]) + 1) <= budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def logprobs(model: Any, rows: Sequence[ScoringRow], temperature: float, budget: int) -> Scores:
    """Score completions.

    Args:
        model: a transformers causal LM, peft-wrapped or not.
        rows: prompts of at least one token and completions of at least one.
        temperature: divides the logits; 0 counts as 1, as for greedy samples.
        budget: tokens of one pass. With gradients enabled all passes' activations are kept: a learner scores one
            of its micro-batches at a time.

    Raises:
        ValueError: an empty prompt or completion.
    """
    device = next(model.parameters()).device
    if any(not row.prompt or not row.completion for row in rows):
        raise ValueError(
            "a row to be scored has at least one prompt token and one completion token"
        )
    longest = max((len(row.completion) for row in rows), default=0)
    counts = torch.tensor([len(row.completion) for row in rows], dtype=torch.int64)
    mask = (torch.arange(longest) < counts[:, None]).to(device)
    if not rows:
        return Scores(torch.zeros(0, 0, device=device), mask)
    groups = micro_batches([len(row.prompt) + len(row.completion) for row in rows], budget)

    def take(logits: Tensor, wanted: Tensor) -> Tensor:
        return _gathered(logits, wanted, temperature or 1.0)

    flat = torch.cat([_score(model, [rows[i] for i in group], device, take) for group in groups])
    order = [i for group in groups for i in group]
    place = torch.zeros(len(rows), dtype=torch.int64)
    place[order] = torch.cat([torch.zeros(1, dtype=torch.int64), counts[order].cumsum(0)[:-1]])
    index = (place[:, None] + torch.arange(longest)).clamp(max=len(flat) - 1).to(device)
    return Scores(torch.where(mask, flat[index], 0.0), mask)


@torch.no_grad()
def alternatives(
    model: Any, rows: Sequence[ScoringRow], budget: int
) -> list[list[tuple[int, int, float]]]:
    """Likely alternatives of each row: position in the completion, token id, log-probability there; in the order of positions.

    Args:
        rows: as `logprobs` takes them.
        budget: tokens of one pass.
    """

    def take(logits: Tensor, wanted: Tensor) -> Tensor:
        values, ids = logits.float().log_softmax(-1).topk(MOST, -1)
        values = values.masked_fill(
            (ids == wanted[:, None]) | (values < math.log(LEAST)), float("-inf")
        )
        return torch.stack((values.double(), ids.double()), -1)

    device = next(model.parameters()).device
    result: list[list[tuple[int, int, float]]] = [[] for _ in rows]
    for group in micro_batches([len(row.prompt) + len(row.completion) for row in rows], budget):
        flat = _score(model, [rows[i] for i in group], device, take).cpu()
        for i, part in zip(
            group, flat.split([len(rows[i].completion) for i in group]), strict=True
        ):
            likely = part[..., 0].isfinite().nonzero().tolist()
            result[i] = [
                (position, int(part[position, place, 1]), float(part[position, place, 0]))
                for position, place in likely
            ]
    return result


def _score(
    model: Any,
    rows: Sequence[ScoringRow],
    device: torch.device,
    take: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """`take` applied to all completion tokens of these rows, row after row.

    Args:
        take: logits [tokens, vocabulary] and the drawn tokens [tokens] → a value a token.
    """
    texts = [[*row.prompt, *row.completion] for row in rows]
    width = max(map(len, texts))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts], device=device)
    where = [
        (i, t) for i, row in enumerate(rows) for t in range(len(row.prompt) - 1, len(texts[i]) - 1)
    ]
    at = torch.tensor(where, device=device)
    sequence, before = at[:, 0], at[:, 1]
    wanted = ids[sequence, before + 1]
    inner = unwrapped(model)
    if (
        inner.config.model_type not in ARCHITECTURES
    ):  # other models may change their logits after the head
        start = int(before.min())
        keep = torch.arange(start, width, device=device)
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
        return take(logits[sequence, before - start], wanted)
    hidden = inner.model(input_ids=ids, use_cache=False).last_hidden_state[sequence, before]
    size = max(1, HEAD_LOGITS // inner.lm_head.out_features)
    parts = []
    for part, want in zip(hidden.split(size), wanted.split(size)):
        if torch.is_grad_enabled() and len(hidden) > size:
            parts.append(checkpoint(_head, inner.lm_head, part, want, take, use_reentrant=False))
        else:
            parts.append(_head(inner.lm_head, part, want, take))
    return torch.cat(parts)


def _head(
    head: Any, hidden: Tensor, wanted: Tensor, take: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    return take(head(hidden), wanted)


def _gathered(logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    logits = logits.float() / temperature
    return logits.gather(1, wanted[:, None])[:, 0] - logits.logsumexp(-1)
