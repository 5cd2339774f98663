"""A step's figures for metrics.jsonl, TensorBoard, the live table and the guards."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType

from dvk.agents.turns import speedup
from dvk.errors import DvkError
from dvk.learn import credit
from dvk.learn.assign import REASONS
from dvk.records import Episode, Role, Status, Turn
from dvk.skills.grooming import LibraryChange

GUARD_STEPS = 3
"""Consecutive bad steps after which a guard stops the run; ours."""
LEAST_ENTROPY = 0.05
"""Least entropy, as a share of the run's first: below it the policy has collapsed to one answer. Not in nats, since a model of one
small language starts at 0.01 per token. Ours."""
MOST_UNREAD = 0.9
"""Largest share of a step's answers that do not parse: above it the model degenerates; ours."""

THRESHOLDS = (1.0, 1.2, 1.5)


Worths = Mapping[str, Mapping[int, "float | None"]]
"""Task id → sample of its summary → worth of its skills in their trial; None: not tried."""


def episode_figures(
    episodes: Sequence[Episode], worths: Worths = MappingProxyType({})
) -> dict[str, float]:
    """Rewards by role and turn, shares of right, fast and unparsable answers, candidates judged.

    Args:
        episodes: with rewards on their turns.
        worths: see `Worths`.
    """
    rewards: dict[str, list[float]] = defaultdict(list)
    counts: Counter[str] = Counter()
    judged: dict[tuple[str, str], bool] = {}
    for task_id, role, number, turn in _turns(episodes):
        counts[f"answers_{role}"] += 1
        counts[f"unread_{role}"] += turn.malformed is not None
        if role == "policy":
            if turn.reward is not None:
                rewards[f"reward_turn_{number}"].append(turn.reward)
            counts["right"] += _right(turn)
            for threshold in THRESHOLDS:
                counts[f"fast_{threshold:g}"] += speedup(turn) > threshold
        if turn.verdict is not None and turn.candidate is not None:
            judged.setdefault((task_id, turn.candidate.id), turn.verdict.cached)
    for episode in episodes:
        for name, value in _of_roles(episode, worths.get(episode.task.id, {})):
            rewards[name].append(value)
    answers = max(1, counts["answers_policy"])
    shares = {
        name: counts[name] / answers for name in ("right", *(f"fast_{t:g}" for t in THRESHOLDS))
    }
    unread = {
        f"unread_{role}": counts[f"unread_{role}"] / counts[f"answers_{role}"]
        for role in ("policy", "selection", "summary")
        if counts[f"answers_{role}"]
    }
    best = [
        max(
            (speedup(turn) for trace in e.traces if trace.role == "policy" for turn in trace.turns),
            default=0.0,
        )
        for e in episodes
    ]
    logs = [math.log(b) for b in best if b > 0]
    return {
        **{name: fmean(values) for name, values in sorted(rewards.items())},
        **shares,
        **unread,
        "best_speedup": math.exp(fmean(logs)) if logs else 0.0,
        "tasks": float(len(episodes)),
        "answers": float(counts["answers_policy"]),
        "judged": float(len(judged)),
        "judged_anew": float(sum(not cached for cached in judged.values())),
    }


def _turns(episodes: Sequence[Episode]) -> Iterator[tuple[str, Role, int, Turn]]:
    """(task id, role, number of the turn from 1, turn)."""
    for episode in episodes:
        for trace in episode.traces:
            for number, turn in enumerate(trace.turns, start=1):
                yield episode.task.id, trace.role, number, turn


def _of_roles(episode: Episode, worths: Mapping[int, float | None]) -> Iterator[tuple[str, float]]:
    """Mean results with each selection, and without skills; and each summary's reward, as used for credit."""
    schemes: dict[int | None, list[list[float]]] = defaultdict(list)
    for trace in episode.traces:
        rewards = [turn.reward for turn in trace.turns if turn.reward is not None]
        if trace.role == "policy" and rewards and not trace.broken:
            schemes[trace.scheme].append(rewards)
        elif trace.role == "summary" and trace.turns and trace.turns[-1].finish != "error":
            unread = trace.turns[-1].malformed is not None
            value = (trace.turns[-1].reward or 0.0) if unread else worths.get(trace.rollout, 0.0)
            if value is not None:
                yield "reward_summary", value
    for scheme, rollouts in schemes.items():
        yield "reward_null" if scheme is None else "reward_selection", credit.worth(rollouts)


def left_out_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """Counts over episodes, as `left_out_…`; 0 where there was none."""
    total = Counter(dict.fromkeys(REASONS, 0))
    for part in parts:
        total.update(part)
    return {f"left_out_{name}": float(count) for name, count in sorted(total.items())}


def grooming_counts(changes: Iterable[LibraryChange]) -> dict[str, float]:
    """Counts of a grooming: skills retired, merged and changed."""
    done = Counter(change.kind for change in changes)
    return {name: float(done[name]) for name in ("retired", "merged", "changed")}


class Guards:
    """Guard that stops a diverging run, with the reason.

    Args:
        rows: figures of the run's earlier steps.
    """

    def __init__(self, rows: Iterable[Mapping[str, float | None]] = ()):
        self._began = next((known for row in rows if (known := _entropy(row)) is not None), None)
        self._low = self._unread = 0

    def look(self, step: int, figures: Mapping[str, float]) -> None:
        """Add a step.

        Raises:
            DvkError: too many steps in a row exceeded the limits.
        """
        if (entropy := _entropy(figures)) is not None:
            self._began = self._began or entropy
            self._low = self._low + 1 if entropy < LEAST_ENTROPY * self._began else 0
        self._unread = self._unread + 1 if figures.get("unread_policy", 0.0) > MOST_UNREAD else 0
        if self._low >= GUARD_STEPS:
            problem = (
                f"the policy's entropy has been below {LEAST_ENTROPY:.0%} of what it was at first for {self._low} steps: "
                "it gives one answer"
            )
            raise DvkError(
                problem,
                "restart with --from hf:RUN/checkpoints/step_…, an earlier one, and a lower train.rate",
            )
        if self._unread >= GUARD_STEPS:
            raise DvkError(
                f"more than {MOST_UNREAD:.0%} of the answers cannot be read since step {step - self._unread + 1}",
                "look at episodes/, lower train.rate, or start from a checkpoint that has seen `dvk sft`",
            )


def _entropy(row: Mapping[str, float | None]) -> float | None:
    """The figure; None if nothing was learned or the figure is not finite: no limit applies."""
    entropy = row.get("entropy")
    return entropy if entropy is not None and math.isfinite(entropy) else None


def _right(turn: Turn) -> bool:
    return turn.verdict is not None and turn.verdict.status is Status.OK
