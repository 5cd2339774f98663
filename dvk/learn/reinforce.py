"""One update from played rows: score them, reject those on which sampler and learner disagree, make a step or several.

The learner scores the rows before it changes: the clipped loss compares with those probabilities, and their
distance from the sampler's is the mismatch. Both use the same weights, so the difference is arithmetic (and, if
generation runs ahead, staleness); rows beyond the band are rejected (MRS), or weighted by it.

All processes of a run know all rows. Each scores its share of the packs and sends the others the result, so that every one rejects the
same rows; then each computes its share of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch

from dvk.config import Config, ObjectiveConfig
from dvk.distributed import ProcessGroup
from dvk.learn import credit
from dvk.learn.learner import Learner, Loss, Scored
from dvk.learn.loss import clipped, divergence, gathered
from dvk.learn.packs import Packs, deal_packs, lay_out, plan
from dvk.learn.rows import TrainingRow

VETO = 0.0001
"""One token with a smaller ratio drops its answer."""

ALONE = ProcessGroup()
LARGEST_LOG_RATIO = 50.0
"""Above this a ratio is stated as e^50: a server writes minus infinity as -9999."""
MEANS = ("clipped", "entropy", "grad_norm", "kl", "loss")
"""Figures of an update that are means over its optimizer steps."""
PACK_STEP = 64
"""Lengths of packs are multiples of this, in tokens: few shapes for the device's matmuls."""
SPREAD = 0.02
"""Standard deviation of a token's log-ratio due to bfloat16 arithmetic alone."""


@dataclass(frozen=True)
class MatchedRows:
    """Rows with the learner's own log-probabilities, and statistics of the rejection.

    Attributes:
        rows: rows to learn.
        kept: share of the rows that were kept.
        gap: mean over rows of |mean log-ratio of learner and sampler|, nats a token; 0 if no sampler gave its own.
        worst: largest of them.
        token_gap: mean over tokens of |log-ratio|, nats; an engine's rounding shows here, where the mean of a row cancels it.
        largest_ratio: largest ratio of one token's two probabilities, the larger over the smaller.
    """

    rows: list[TrainingRow]
    kept: float
    gap: float
    worst: float
    token_gap: float
    largest_ratio: float


def match(
    learner: Learner,
    rows: Sequence[TrainingRow],
    config: Config,
    temperature: float = 1.0,
    processes: ProcessGroup = ALONE,
) -> MatchedRows:
    """Score rows under the current weights, and reject mismatches.

    Args:
        learner: the current weights.
        rows: with the sampler's log-probabilities if known.
        config: `credit` for the band and the veto, `learning` for sizes.
        temperature: the sampling temperature.
        processes: the process group; all processes have the same rows.
    """
    settings = config.credit
    scored = logprobs(learner, rows, config, temperature, processes)
    spread = SPREAD if learner.rounds else 0.0
    kept, gaps = [], []
    apart: list[np.ndarray] = []
    for row, found in zip(rows, scored, strict=True):
        if row.logprobs:
            ratios = np.asarray(found) - np.asarray(row.logprobs)
            gaps.append(abs(float(ratios.mean())))
            apart.append(np.abs(ratios))
        limits = (settings.mismatch, spread, VETO)
        if settings.mismatch_rejection and not credit.mismatch_mask(found, row.logprobs, *limits):
            continue
        weight = 1.0
        if settings.correction_cap and row.logprobs:
            weight = fmean(credit.corrections(found, row.logprobs, settings.correction_cap))
        kept.append(replace(row, logprobs=found, advantage=row.advantage * weight))
    tokens = np.concatenate(apart) if apart else np.zeros(1)
    return MatchedRows(
        kept,
        len(kept) / len(rows) if rows else 1.0,
        fmean(gaps) if gaps else 0.0,
        max(gaps, default=0.0),
        float(tokens.mean()),
        float(np.exp(min(tokens.max(), LARGEST_LOG_RATIO))),
    )


@torch.no_grad()
def logprobs(
    learner: Learner,
    rows: Sequence[TrainingRow],
    config: Config,
    temperature: float = 1.0,
    processes: ProcessGroup = ALONE,
) -> list[list[float]]:
    """Log-probabilities of each row's targets under the learner's weights, shape (targets,) a row."""
    result: list[list[float]] = [[] for _ in rows]
    mine: list[tuple[list[int], np.ndarray]] = []
    for groups, packs in micro_batches(rows, config, processes=processes):
        with learner.computing():
            scored, _ = learner.scorer(packs.to(learner.device), temperature)
        flat, at = scored.float().cpu().numpy(), 0
        # Targets come in the order of packs and, inside one, of rows.
        for group in groups:
            count = sum(sum(rows[index].targets) for index in group)
            mine.append((group, flat[at : at + count]))
            at += count
    for group, flat in processes.gather(mine):
        at = 0
        for index in group:
            count = sum(rows[index].targets)
            result[index], at = flat[at : at + count].tolist(), at + count
    return result


def micro_batches(
    rows: Sequence[TrainingRow], config: Config, seed: int = 0, processes: ProcessGroup = ALONE
) -> list[tuple[list[list[int]], Packs]]:
    """Rows laid into micro-batches, this process's share: the rows of each pack, and the packs.

    A micro-batch holds at most `micro_packs` × `pack_tokens` tokens, or one row that is longer. Its packs are as long as its fullest one.

    Args:
        rows: those longer than `pack_tokens` come last, each in a separate pack.
        config: `learning`.
        seed: of the order.
        processes: the process group. Every process gets as many micro-batches.
    """
    settings = config.learning
    sizes = np.asarray([len(row.ids) for row in rows], dtype=np.int64)
    short = np.flatnonzero(sizes <= settings.pack_tokens)
    groups = [short[g].tolist() for g in plan(sizes[short], settings.pack_tokens, seed)]
    laid = []
    for part in deal_packs(groups, processes.rank, processes.size, settings.micro_packs):
        fullest = max((int(sizes[group].sum()) for group in part), default=1)
        laid.append((part, min(settings.pack_tokens, -(-fullest // PACK_STEP) * PACK_STEP)))
    budget = settings.micro_packs * settings.pack_tokens
    # The longest first: rows of about one length share a micro-batch, and a run that lacks the memory fails at once.
    long = sorted(np.flatnonzero(sizes > settings.pack_tokens).tolist(), key=lambda i: -sizes[i])
    while long:
        capacity = int(sizes[long[0]])
        count = max(1, budget // capacity) * processes.size
        now, long = long[:count], long[count:]
        laid.append(([[i] for i in now[processes.rank :: processes.size]], capacity))
    return [
        (part, lay_out([[rows[i] for i in group] for group in part], capacity))
        for part, capacity in laid
    ]


def objective(settings: ObjectiveConfig) -> Loss:
    """The clipped policy gradient as a learner's loss, plus `kl` times the divergence from the initial weights."""

    def loss(scored: Scored) -> tuple[torch.Tensor, dict[str, float]]:
        each = clipped(scored.logprobs, scored.old, scored.weights, settings)
        ratio = (scored.logprobs.detach() - scored.old).exp()
        outside = (
            (ratio < 1 - settings.clip_low) | (ratio > 1 + settings.clip_high)
        ).sum() / scored.num_targets
        figures = {"clipped": float(outside)}
        if scored.start is not None:
            apart = divergence(scored.logprobs, scored.start)
            each = each + settings.kl * apart
            figures["kl"] = float(apart.detach().sum() / scored.num_targets)
        return gathered(each, scored.rows, scored.num_targets, scored.num_rows, settings), figures

    return loss


def update(
    learner: Learner,
    rows: Sequence[TrainingRow],
    config: Config,
    *,
    seed: int = 0,
    temperature: float = 1.0,
    processes: ProcessGroup = ALONE,
    earlier: Sequence[TrainingRow] = (),
) -> dict[str, float]:
    """Match, and make `objective.passes` passes over all remaining rows, each of `objective.mini_batches` optimizer steps.

    Args:
        learner: changed in place.
        rows: with advantages.
        config: `credit`, `objective`, `learning`.
        seed: of the order of rows.
        temperature: the sampling temperature.
        processes: the process group; all processes have the same rows.
        earlier: rows of earlier steps, mixed in. They keep the probabilities that they were drawn with, from which clipping
            measures how far the policy has gone since.

    Returns:
        The learner's report, its last step's with the mean of `MEANS` over all, and rows, kept and the figures of the mismatch. Without
        rows nothing changes.

    Raises:
        DvkError: loss or gradient is not finite.
    """
    settings = config.objective
    matched = match(learner, rows, config, temperature, processes)
    figures = {
        "rows": float(len(matched.rows)),
        "kept": matched.kept,
        "mismatch": matched.gap,
        "mismatch_worst": matched.worst,
        "mismatch_token": matched.token_gap,
        "mismatch_ratio": matched.largest_ratio,
    }
    if not matched.rows:
        return figures
    old = [row for row in earlier if row.logprobs]
    reports = []
    for number in range(settings.passes):
        for mine in mini_batches([*matched.rows, *old], settings.mini_batches, seed + number):
            packs = [packs for _, packs in micro_batches(mine, config, seed, processes)]
            reports.append(learner.step(packs, objective(settings), temperature))
    means = {name: fmean(one[name] for one in reports) for name in MEANS if name in reports[0]}
    return {**reports[-1], **means, **figures, "earlier_rows": float(len(old))}


def mini_batches(rows: Sequence[TrainingRow], count: int, seed: int) -> list[list[TrainingRow]]:
    """Rows shuffled and dealt into `count` parts that differ by at most one; fewer if there are fewer rows."""
    if count == 1:
        return [list(rows)]
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    return [[rows[i] for i in order[first::count]] for first in range(min(count, len(rows)))]


__all__ = [
    "MatchedRows",
    "logprobs",
    "match",
    "micro_batches",
    "mini_batches",
    "objective",
    "update",
]
