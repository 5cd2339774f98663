"""Learning to choose among known answers: every measured plan of a task at once, instead of samples of them.

A model's probability of an answer is the one it is drawn with where it is played (`dvk.backbone.choosing`): its probability of all the
answer's tokens, divided by that of all listed answers. Three losses:

    started     likelihood of the composer's own plan, and of all answers alike: nothing that was measured
    weighted    cross-entropy with targets proportional to speedup^(1/β) (advantage-weighted fit, arXiv 1910.00177)
    reinforced  minus the expected log-speedup: REINFORCE with every answer drawn, near an earlier policy

`weighted` is for gains without noise, such as `pooled` ones. The fastest of a dozen measured schedules is so by the clock's noise and by
what no question says: a model that imitates it is sure of schedules that lose elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dvk.backbone import choosing
from dvk.backbone.choosing import AnswerBatch, AnswerList

WRONG = -1.0
"""Log-speedup of a plan that was wrong or crashed: as bad as 2.7 times slower."""


@dataclass(frozen=True)
class ChoiceRow(AnswerList):
    """One task's question and its known answers.

    Attributes:
        gains: log-speedup of each over eager; `WRONG` for those that failed.
        name: the task's.
    """

    gains: Sequence[float]
    name: str = ""

    def kept(self, keep: Sequence[int]) -> ChoiceRow:
        """With some of its answers."""
        return ChoiceRow(
            self.question, [self.answers[i] for i in keep], [self.gains[i] for i in keep], self.name
        )


@dataclass(frozen=True)
class ChoiceBatch:
    """Tensors of some rows; R rows, K answers at most.

    Attributes:
        answers: questions and answers.
        gains: float32 [R, K]; minus infinity for padding.
    """

    answers: AnswerBatch
    gains: torch.Tensor


def lay_out(rows: Sequence[ChoiceRow], device: torch.device | str) -> ChoiceBatch:
    """The tensors of some rows."""
    most = max(len(row.answers) for row in rows)
    gains = [[*row.gains, *[-math.inf] * (most - len(row.gains))] for row in rows]
    answers = choosing.lay_out(rows, device)
    return ChoiceBatch(answers, torch.tensor(gains, device=device))


def likelihoods(model: Any, batch: ChoiceBatch) -> torch.Tensor:
    """Log-probability of each answer among those of its row, [R, K]; minus infinity for padding."""
    return _written(model, batch).log_softmax(-1)


def _written(model: Any, batch: ChoiceBatch) -> torch.Tensor:
    """The same among all texts."""
    return choosing.of_answers(choosing.scores(model, batch.answers), batch.answers)


def started(model: Any, batch: ChoiceBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss of knowing nothing of speeds: half for the first answer of each row, the composer's own, half for all of them alike.

    The first term compares the answers of a row with each other. The second is the cross-entropy of free writing, among all texts: each
    token of an answer becomes likely, so that longer answers do not lose probability where a list has other answers.
    """
    written = _written(model, batch)
    logs = written.log_softmax(-1)
    real = (batch.gains > -math.inf).float()
    share = 0.5 * real / real.sum(-1, keepdim=True)
    share[:, 0] += 0.5
    return _imitated(logs, share) + _imitated(written, share), _expected(logs, batch.gains).detach()


def targets(gains: torch.Tensor, sharpness: float) -> torch.Tensor:
    """Shares of the known answers, [R, K]: proportional to exp(gain / sharpness)."""
    return (gains / sharpness).softmax(-1)


def weighted(model: Any, batch: ChoiceBatch, sharpness: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted fit's loss, and the expected log-speedup of the batch.

    Args:
        sharpness: β, in log-speed: answers that are this much slower than the best count for 1/e.
    """
    logs = likelihoods(model, batch)
    return _imitated(logs, targets(batch.gains, sharpness)), _expected(logs, batch.gains).detach()


def reinforced(
    model: Any, batch: ChoiceBatch, before: torch.Tensor, kl: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minus the expected log-speedup plus `kl` times the distance from an earlier policy; and the expected log-speedup.

    The distance is KL(before ‖ π), whose gradient is π - before: an answer that became improbable by one large step comes back. That of
    KL(π ‖ before) vanishes with the answer's probability, as that of the expected speed does.

    Args:
        before: `likelihoods` of the earlier policy b; the best policy has π = b · kl / (kl - (gain - expected gain)).
        kl: log-speed that is worth one nat.
    """
    logs = likelihoods(model, batch)
    value = _expected(logs, batch.gains)
    real = batch.gains > -math.inf
    distance = (before.exp() * (before - logs).masked_fill(~real, 0.0)).sum(-1).mean()
    return kl * distance - value, value.detach()


def _imitated(logs: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Cross-entropy to shares of the answers, a mean over rows."""
    return -(share * logs.masked_fill(share == 0, 0.0)).sum(-1).mean()


def _expected(logs: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    return (logs.exp() * gains.masked_fill(gains == -math.inf, 0.0)).sum(-1).mean()


@torch.no_grad()
def best(model: Any, batch: ChoiceBatch) -> list[int]:
    """Number of each row's likeliest answer."""
    logs = likelihoods(model, batch)
    return [int(k) for k in logs.argmax(-1)]


def batches(rows: Sequence[ChoiceRow], most_tokens: int) -> list[list[ChoiceRow]]:
    """Rows in groups of similar length with at most so many tokens, padding included; a longer row is alone."""
    groups = choosing.batches(rows, most_tokens)
    return [[rows[i] for i in group] for group in groups]
