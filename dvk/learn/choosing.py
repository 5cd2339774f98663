"""Learning to choose among known answers: every measured plan of a task at once, instead of samples of them.

    question ── answer 1        one sequence: the question once, each answer after it,
           ├─── answer 2        seen by itself and by no other
           └─── answer 3

A model's probability of an answer among those known is the softmax of `SCALE` times the mean log-likelihood of its tokens: sums would
make long answers improbable, and differ by a hundred nats where learning begins. Three losses:

    started     likelihood of writing the composer's own plan and the best ones: the model learns the words
    weighted    cross-entropy with targets proportional to speedup^(1/β) (advantage-weighted fit, arXiv 1910.00177), over the known answers,
                plus the likelihood of writing them token by token
    expected    minus the expected log-speedup under that softmax: REINFORCE with every sample drawn, so without sampling noise
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dvk.backbone.decoding.forward import unwrapped

SCALE = 8.0
"""Nats of choice per nat of a token: an answer half a nat a token more likely than another is chosen 50 times as often."""
WRONG = -1.0
"""Log-speedup of a plan that was wrong or crashed: as bad as 2.7 times slower."""


@dataclass(frozen=True)
class ChoiceRow:
    """One task's question and its known answers.

    Attributes:
        question: token ids.
        answers: token ids of each, with the token that ends it.
        gains: log-speedup of each over eager; `WRONG` for those that failed.
        name: the task's.
    """

    question: Sequence[int]
    answers: Sequence[Sequence[int]]
    gains: Sequence[float]
    name: str = ""

    @property
    def num_tokens(self) -> int:
        return len(self.question) + sum(map(len, self.answers))

    def kept(self, keep: Sequence[int]) -> ChoiceRow:
        """With some of its answers."""
        return ChoiceRow(
            self.question, [self.answers[i] for i in keep], [self.gains[i] for i in keep], self.name
        )


@dataclass(frozen=True)
class ChoiceBatch:
    """Tensors of some rows, padded; T tokens, R rows, K answers at most.

    Attributes:
        ids, positions: int64 [R, T].
        mask: bool [R, 1, T, T]; which tokens a token attends to.
        before: int64 [R, K, L]; place of the token before each answer token.
        labels: int64 [R, K, L].
        real: bool [R, K, L].
        gains: float32 [R, K]; minus infinity for padding.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    before: torch.Tensor
    labels: torch.Tensor
    real: torch.Tensor
    gains: torch.Tensor


def lay_out(rows: Sequence[ChoiceRow], device: torch.device | str) -> ChoiceBatch:
    """The tensors of some rows."""
    longest = max(row.num_tokens for row in rows)
    most = max(len(row.answers) for row in rows)
    length = max(len(answer) for row in rows for answer in row.answers)
    ids, positions = (torch.zeros(len(rows), longest, dtype=torch.int64) for _ in range(2))
    parts = torch.full((len(rows), longest), -1)
    before, labels = (torch.zeros(len(rows), most, length, dtype=torch.int64) for _ in range(2))
    real = torch.zeros(len(rows), most, length, dtype=torch.bool)
    gains = torch.full((len(rows), most), -math.inf)
    for r, row in enumerate(rows):
        asked = len(row.question)
        ids[r, :asked] = torch.tensor(row.question)
        positions[r, :asked] = torch.arange(asked)
        parts[r, :asked] = 0
        begin = asked
        for k, answer in enumerate(row.answers):
            size = len(answer)
            here = slice(begin, begin + size)
            ids[r, here] = torch.tensor(answer)
            positions[r, here] = torch.arange(asked, asked + size)
            parts[r, here] = k + 1
            before[r, k, :size] = torch.tensor([asked - 1, *range(begin, begin + size - 1)])
            labels[r, k, :size], real[r, k, :size] = torch.tensor(answer), True
            gains[r, k] = row.gains[k]
            begin += size
    own, other = parts[:, :, None], parts[:, None, :]
    earlier = torch.ones(longest, longest, dtype=torch.bool).tril()
    mask = earlier & ((other == 0) | (own == other))
    made = ChoiceBatch(ids, positions, mask[:, None], before, labels, real, gains)
    return ChoiceBatch(*(getattr(made, name).to(device) for name in made.__dataclass_fields__))


def likelihoods(model: Any, batch: ChoiceBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-likelihood of each answer, [R, K], minus infinity for padding; and the mean of all answer tokens' by answer, [R, K]."""
    plain = unwrapped(model)
    hidden = plain.get_decoder()(
        input_ids=batch.ids,
        attention_mask=batch.mask,
        position_ids=batch.positions,
        use_cache=False,
    ).last_hidden_state
    num_rows, most, length = batch.before.shape
    rows = torch.arange(num_rows, device=hidden.device)[:, None, None].expand_as(batch.before)
    chosen = hidden[rows[batch.real], batch.before[batch.real]]
    logs = plain.get_output_embeddings()(chosen).float().log_softmax(-1)
    words = logs.gather(-1, batch.labels[batch.real][:, None]).squeeze(-1)
    each = torch.zeros(num_rows, most, length, device=hidden.device)
    each = each.masked_scatter(batch.real, words)
    lengths = batch.real.sum(-1)
    total = each.sum(-1)
    return total.masked_fill(lengths == 0, -math.inf), total / lengths.clamp(min=1)


def targets(gains: torch.Tensor, sharpness: float) -> torch.Tensor:
    """Shares of the known answers, [R, K]: proportional to exp(gain / sharpness)."""
    return (gains / sharpness).softmax(-1)


def started(model: Any, batch: ChoiceBatch, sharpness: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss of writing plans at all: half the first answer of each row, the composer's own, half those that `targets` weighs."""
    total, per_token = likelihoods(model, batch)
    share = 0.5 * targets(batch.gains, sharpness)
    share[:, 0] += 0.5
    value = -(share * per_token).sum(-1).mean()
    return value, _expected(_choice(total, per_token), batch.gains).detach()


def weighted(
    model: Any, batch: ChoiceBatch, sharpness: float, written: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted fit's loss, and the expected log-speedup of the batch.

    Args:
        sharpness: β, in log-speed: answers that are this much slower than the best count for 1/e.
        written: weight of the likelihood of writing the answers, a mean over their tokens.
    """
    total, per_token = likelihoods(model, batch)
    logs = _choice(total, per_token)
    share = targets(batch.gains, sharpness)
    known = share > 0
    choice = -(share * logs.masked_fill(~known, 0.0)).sum(-1).mean()
    writing = -(share * per_token).sum(-1).mean()
    return choice + written * writing, _expected(logs, batch.gains).detach()


def expected(
    model: Any, batch: ChoiceBatch, entropy: float, written: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minus the expected log-speedup, less a bonus for entropy; and the expected log-speedup.

    Args:
        entropy: weight of the entropy in nats.
        written: weight of the likelihood of writing the answers that are likely now: keeps free writing in step with the choice.
    """
    total, per_token = likelihoods(model, batch)
    logs = _choice(total, per_token)
    value = _expected(logs, batch.gains)
    share = logs.exp()
    bonus = -(share * logs.masked_fill(share == 0, 0.0)).sum(-1).mean()
    writing = -(share.detach() * per_token).sum(-1).mean()
    return -value - entropy * bonus + written * writing, value.detach()


def _choice(total: torch.Tensor, per_token: torch.Tensor) -> torch.Tensor:
    """Log-probability of each known answer, [R, K]; minus infinity for padding."""
    return (SCALE * per_token).masked_fill(total == -math.inf, -math.inf).log_softmax(-1)


def _expected(logs: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    return (logs.exp() * gains.masked_fill(gains == -math.inf, 0.0)).sum(-1).mean()


@torch.no_grad()
def best(model: Any, batch: ChoiceBatch) -> list[int]:
    """Number of each row's likeliest answer."""
    return [int(k) for k in _choice(*likelihoods(model, batch)).argmax(-1)]


def batches(rows: Sequence[ChoiceRow], most_tokens: int) -> list[list[ChoiceRow]]:
    """Rows in groups of similar length with at most so many tokens, padding included; a longer row is alone."""
    result: list[list[ChoiceRow]] = []
    for row in sorted(rows, key=lambda row: row.num_tokens):
        if result and row.num_tokens * (len(result[-1]) + 1) <= most_tokens:
            result[-1].append(row)
        else:
            result.append([row])
    return result
