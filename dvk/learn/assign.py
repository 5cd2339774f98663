"""From played episodes to rows: each turn's reward, and its advantage.

Keys are the episode's own: (task, scheme, rollout, turn). Turns without a lesson keep a null advantage and become no
row; the reason is counted. The learner's own rejection (`credit.mismatch_mask`) comes later, when it has scored the rows.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from dvk import registry
from dvk.config import Config, CreditConfig
from dvk.learn import credit
from dvk.learn.rows import TrainingRow
from dvk.records import Episode, Trace, Turn, content_hash
from dvk.rewards import rewarded
from dvk.rewards.correctness import is_right
from dvk.rewards.noise import reward_variance

LEAST_COVERAGE = 0.3
"""Share of device time below which all right turns are left out by PRS."""
COVERAGE_WIDTH = 0.1
"""How far above LEAST_COVERAGE no turn is left out."""

REASONS = ("degenerate", "broken", "void", "alike", "repaired", "coverage")
"""Reasons for leaving turns out: the task is degenerate, the backbone or the judge failed, see `credit.void_mask`, peers have equal
values, a repaired answer was worse than its peers, see `CreditConfig.profiling_rejection`."""
Place = tuple[int, int]
"""Position of a trace in its episode, and of a turn in the trace."""


@dataclass(frozen=True)
class Assigned:
    """An episode with its credit.

    Attributes:
        episode: rewards and advantages on its turns.
        left_out: reason for leaving turns out (`REASONS`) → count.
    """

    episode: Episode
    left_out: Mapping[str, int]


def assign(
    episode: Episode, config: Config, summaries: Mapping[int, float | None] | None = None
) -> Assigned:
    """Rewards, returns and advantages of all conversations about one task.

    Args:
        episode: as played.
        config: `rewards` and `credit`; `seed` drives profiling rejection.
        summaries: sample → worth of its skills in their trial, None if there was no trial; missing ones were
            worth nothing.
    """
    settings = config.credit
    traces = [
        t.model_copy(update={"turns": tuple(rewarded(turn, config.rewards) for turn in t.turns)})
        for t in episode.traces
    ]
    left_out: Counter[str] = Counter()
    found: dict[Place, float] = {}
    if degenerate(episode):
        left_out["degenerate"] = sum(len(trace.turns) for trace in traces)
        return Assigned(_written(episode, traces, found), left_out)
    policy, scale = _policy(episode, traces, config, left_out)
    if settings.policy > 0:
        found.update(policy)
    if settings.selection > 0:
        by = settings.selection / (scale if settings.shared_scale else 1.0)
        found.update(_scaled(_selection(traces, settings), by))
    if settings.summary > 0:
        lessons = _summary(traces, summaries or {}, config)
        if settings.shared_scale and settings.normalize_advantages:
            even = credit.scale_by_mean_abs(list(lessons.values()))
            lessons = dict(zip(lessons, even, strict=True))
        found.update(_scaled(lessons, settings.summary))
    return Assigned(_written(episode, traces, found), left_out)


def degenerate(episode: Episode) -> bool:
    """Whether the judge found the task degenerate (made-up answers pass): it gives no training data."""
    verdicts = (turn.verdict for trace in episode.traces for turn in trace.turns)
    return any(verdict.degenerate for verdict in verdicts if verdict is not None)


def _written(episode: Episode, traces: Sequence[Trace], found: Mapping[Place, float]) -> Episode:
    made = []
    for position, trace in enumerate(traces):
        turns = tuple(
            t.model_copy(update={"advantage": found.get((position, number))})
            for number, t in enumerate(trace.turns)
        )
        made.append(trace.model_copy(update={"turns": turns}))
    return episode.model_copy(update={"traces": tuple(made)})


def has_signal(episode: Episode, config: Config) -> bool:
    """Whether any of the policy's answers has a nonzero advantage: else a task teaches nothing."""
    found = assign(episode, config).episode
    return any(turn.advantage for t in found.traces if t.role == "policy" for turn in t.turns)


def scaled_together(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes of a step with all advantages divided by the mean size of the policy's, so that it is 1 whatever rewards are."""
    policy = [
        turn.advantage
        for episode in episodes
        for trace in episode.traces
        if trace.role == "policy"
        for turn in trace.turns
        if turn.advantage
    ]
    scale = credit.mean_abs(policy)
    if scale <= 0:
        return list(episodes)
    return [
        _written(
            episode,
            episode.traces,
            {
                (position, number): turn.advantage / scale
                for position, trace in enumerate(episode.traces)
                for number, turn in enumerate(trace.turns)
                if turn.advantage is not None
            },
        )
        for episode in episodes
    ]


def rows(episode: Episode) -> list[TrainingRow]:
    """The learner's rows of an episode with credit: one row a turn that has tokens and a nonzero advantage."""
    result = []
    for trace in episode.traces:
        for number, turn in enumerate(trace.turns):
            if turn.advantage and turn.tokens is not None and turn.tokens.completion:
                key = (episode.task.id, trace.scheme, trace.rollout, number)
                result.append(
                    TrainingRow.answer(
                        turn.tokens.prompt,
                        turn.tokens.completion,
                        advantage=turn.advantage,
                        logprobs=turn.tokens.logprobs,
                        given=turn.tokens.given,
                        role=trace.role,
                        key=key,
                    )
                )
    return result


def _scaled(advantages: Mapping[Place, float], weight: float) -> dict[Place, float]:
    return {place: weight * value for place, value in advantages.items()}


def _policy(
    episode: Episode, traces: Sequence[Trace], config: Config, left_out: Counter[str]
) -> tuple[dict[Place, float], float]:
    """Advantages, and what they were divided by. Turns are compared with the same turn of all the task's conversations."""
    settings = config.credit
    advantage: credit.Advantage = registry.resolve(
        settings.advantage, credit.ADVANTAGES, "advantage"
    )
    values: dict[Hashable, float] = {}
    noise: dict[Hashable, float] = {}
    peers: dict[Hashable, Hashable] = {}
    for position, trace in enumerate(traces):
        if trace.role != "policy":
            continue
        if trace.broken:
            left_out["broken"] += len(trace.turns)
            continue
        rewards = [_reward(turn) for turn in trace.turns]
        void = credit.void_mask(rewards)
        variances = [reward_variance(turn, config.rewards) for turn in trace.turns]
        of_returns = credit.returns(variances, settings.gamma**2)
        for number, value in enumerate(credit.returns(rewards, settings.gamma)):
            values[position, number] = value
            noise[position, number] = of_returns[number]
            if void[number]:
                left_out["void"] += 1
            else:
                peers[position, number] = number
    found = credit.over_peers(values, peers, advantage)
    shares = dict[Hashable, float]()
    if _compares(settings):
        shares = _signal_shares(values, noise if settings.shrink_noise else {}, peers)
    scale = credit.mean_abs(list(found.values())) if settings.normalize_advantages else 1.0
    scale = scale if scale > credit.SPREAD else 1.0
    kept: dict[Place, float] = {}
    for position, trace in enumerate(traces):
        for number, turn in enumerate(trace.turns):
            if (position, number) not in found:
                continue
            share = shares.get(peers[position, number], 1.0)
            if share == 0:
                left_out["alike"] += 1
            elif turn.redrawn and found[position, number] < 0:
                # Not drawn but forced: it is imitated where it was better, and left otherwise.
                left_out["repaired"] += 1
            elif (
                settings.profiling_rejection
                and is_right(turn)
                and not _covered(episode, trace, number, turn, config)
            ):
                left_out["coverage"] += 1
            else:
                kept[position, number] = share * found[position, number] / scale
    return kept, scale


def _compares(settings: CreditConfig) -> bool:
    """Advantages are differences between peers: equal values give no signal."""
    return settings.advantage != "reinforce"


def _signal_shares(
    values: Mapping[Hashable, float],
    noise: Mapping[Hashable, float],
    peers: Mapping[Hashable, Hashable],
) -> dict[Hashable, float]:
    """Share of signal by group of peers; 0 where all are equal, or differ by no more than their noise explains."""
    groups: dict[Hashable, list[Hashable]] = defaultdict(list)
    for key, group in peers.items():
        groups[group].append(key)
    shares = {}
    for group, keys in groups.items():
        of = [values[key] for key in keys]
        variances = [noise.get(key, 0.0) for key in keys]
        shares[group] = 0.0 if credit.has_no_spread(of) else credit.signal_share(of, variances)
    return shares


def _covered(episode: Episode, trace: Trace, number: int, turn: Turn, config: Config) -> bool:
    key = (
        str(config.seed),
        str(episode.step),
        episode.task.id,
        str(trace.scheme),
        str(trace.rollout),
        str(number),
    )
    draw = random.Random(content_hash(*key)).random()
    assert turn.verdict is not None
    return credit.coverage_mask(turn.verdict.coverage, draw, LEAST_COVERAGE, COVERAGE_WIDTH)


def _selection(traces: Sequence[Trace], settings: CreditConfig) -> dict[Place, float]:
    """A selection's worth is that of its conversations; an unparsable one has the null scheme's, less its penalty.

    An explored selection was given, not sampled: the learner imitates it where it was better than the others, and leaves it
    otherwise, since unlikely answers with a negative weight take the model apart.
    """
    played: dict[int | None, list[list[float]]] = defaultdict(list)
    for trace in traces:
        if trace.role == "policy" and trace.turns and not trace.broken:
            played[trace.scheme].append([_reward(turn) for turn in trace.turns])
    worth = {scheme: credit.worth(rollouts) for scheme, rollouts in played.items()}
    null = worth.get(None)
    asked = [
        (p, t)
        for p, t in enumerate(traces)
        if t.role == "selection" and t.turns and t.turns[-1].finish != "error"
    ]
    read = [(p, t) for p, t in asked if t.turns[-1].malformed is None and t.scheme in worth]
    schemes = [(frozenset(t.turns[-1].chosen), worth[t.scheme]) for _, t in read]
    values = credit.selections(schemes, null)
    if settings.shrink_noise:
        share = _selection_share(schemes, [played[t.scheme] for _, t in read], played.get(None))
        values = [share * value for value in values]
    result: dict[Place, float] = {}
    for (position, trace), value in zip(read, values, strict=True):
        result[position, 0] = max(0.0, value) if trace.turns[-1].forced else value
    others = [worth[t.scheme] for _, t in read] + ([null] if null is not None else [])
    middle = sum(others) / len(others) if others else 0.0
    for position, trace in asked:
        if trace.turns[-1].malformed is not None:
            base = null if null is not None else middle
            result[position, 0] = base + _reward(trace.turns[-1]) - middle
    return result


def _selection_share(
    schemes: Sequence[tuple[frozenset[str], float]],
    rollouts: Sequence[Sequence[Sequence[float]]],
    null: Sequence[Sequence[float]] | None,
) -> float:
    """Share of signal in the differences between choices, given how much the conversations under one choice differ."""
    every = [(chosen, of) for (chosen, _), of in zip(schemes, rollouts, strict=True)]
    every += [(frozenset(), null)] if null is not None else []
    by_choice: dict[frozenset[str], list[Sequence[float]]] = defaultdict(list)
    for chosen, of in every:
        by_choice[chosen] += of
    return credit.signal_share(
        [credit.worth(of) for of in by_choice.values()],
        [credit.worth_variance(of) for of in by_choice.values()],
    )


def _summary(
    traces: Sequence[Trace], worth: Mapping[int, float | None], config: Config
) -> dict[Place, float]:
    """Samples about one improvement are compared with each other; those without a trial are no peers."""
    asked, values = [], []
    for position, trace in enumerate(traces):
        if trace.role == "summary" and trace.turns and trace.turns[-1].finish != "error":
            unread = trace.turns[-1].malformed is not None
            value = _reward(trace.turns[-1]) if unread else worth.get(trace.rollout, 0.0)
            if value is not None:
                asked.append((position, trace))
                values.append(value)
    advantage: credit.Advantage = registry.resolve(
        config.credit.advantage, credit.ADVANTAGES, "advantage"
    )
    if credit.has_no_spread(values) and _compares(config.credit):
        return {}
    return {(p, 0): a for (p, _), a in zip(asked, advantage(values), strict=True)}


def _reward(turn: Turn) -> float:
    return turn.reward if turn.reward is not None else 0.0
