"""Credit assignment: from rewards of turns to advantages. Pure functions of numbers; nothing here knows a model.

The caller decides which values are compared, by explicit peer groups: (task, turn) over all conversations for the
policy, the schemes of a task for the selection, the samples about one improvement for the summary. Formulas are those of
daVinci-kernel (arXiv 2606.16497) and Dr.Kernel (arXiv 2602.05885) where named so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import fmean, pstdev, variance

Advantage = Callable[[Sequence[float]], list[float]]

ADVANTAGES: dict[str, str] = {
    "leave_one_out": "dvk.learn.credit:leave_one_out",
    "grpo": "dvk.learn.credit:grpo",
    "reinforce": "dvk.learn.credit:reinforce",
}
SPREAD = 1e-3
"""Peers whose values differ by less carry no signal: daVinci drops such groups before the update."""


def returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """G_t = Σ_{u ≥ t} γ^(u−t) r_u, a turn.

    Args:
        rewards: of one conversation's turns, in order.
        gamma: 1 credits an early turn with all later rewards (daVinci), 0.4 mostly with its own (Kevin).
    """
    result: list[float] = []
    later = 0.0
    for reward in reversed(rewards):
        later = reward + gamma * later
        result.append(later)
    return result[::-1]


def leave_one_out(values: Sequence[float]) -> list[float]:
    """A_i = G_i − mean of the others = N/(N−1) · (G_i − mean); per turn this is TRLOO (Dr.Kernel).

    Its expectation does not depend on the peers, unlike that of a group mean that contains the value itself. A
    single value has no peers and earns 0.
    """
    if len(values) < 2:
        return [0.0] * len(values)
    total, others = sum(values), len(values) - 1
    return [value - (total - value) / others for value in values]


def grpo(values: Sequence[float]) -> list[float]:
    """A_i = (G_i − mean) / standard deviation (GRPO, arXiv 2402.03300); 0 if all are equal."""
    if len(values) < 2 or (spread := pstdev(values)) < 1e-8:
        return [0.0] * len(values)
    middle = fmean(values)
    return [(value - middle) / spread for value in values]


def reinforce(values: Sequence[float]) -> list[float]:
    """A_i = G_i: no baseline at all."""
    return list(values)


def over_peers(
    values: Mapping[Hashable, float], peers: Mapping[Hashable, Hashable], advantage: Advantage
) -> dict[Hashable, float]:
    """Advantages within groups of peers.

    Args:
        values: by key, e.g. (task, scheme, rollout, turn).
        peers: key → its group; keys that are missing here have no peers and are left out.
        advantage: function of one group.
    """
    groups: dict[Hashable, list[Hashable]] = defaultdict(list)
    for key in values:
        if key in peers:
            groups[peers[key]].append(key)
    return {
        key: a
        for keys in groups.values()
        for key, a in zip(keys, advantage([values[k] for k in keys]), strict=True)
    }


def has_no_spread(values: Sequence[float]) -> bool:
    """Whether all peers are equal: their advantages are 0 or noise, and a step can skip them."""
    return len(values) < 2 or pstdev(values) < SPREAD


def mean_abs(advantages: Sequence[float]) -> float:
    """Mean |A|; over a task's policy turns its scale, so that tasks with large speedups do not dominate (daVinci)."""
    return fmean(abs(a) for a in advantages) if advantages else 0.0


def scale_by_mean_abs(advantages: Sequence[float]) -> list[float]:
    """A / mean |A|."""
    scale = mean_abs(advantages)
    return [a / scale for a in advantages] if scale > 1e-8 else [0.0] * len(advantages)


def signal_share(values: Sequence[float], variances: Sequence[float]) -> float:
    """Share of the variance of peers' values that is not noise, 0 to 1; their advantages are multiplied by it.

    Var(values) = true variance + mean noise variance, so that the best linear estimate of a true difference is the share times
    the measured one (empirical Bayes; Efron and Morris 1973).

    Args:
        values: returns of peers.
        variances: the known noise variance of each.
    """
    if len(values) < 2:
        return 1.0
    total = variance(values)
    return max(0.0, 1.0 - fmean(variances) / total) if total > 0 else 0.0


def void_mask(rewards: Sequence[float]) -> list[bool]:
    """Turns that are left out: worth nothing after an earlier one was worth something (daVinci's void turns)."""
    result, seen = [], False
    for reward in rewards:
        result.append(seen and reward <= 0)
        seen = seen or reward > 0
    return result


# ---------------------------------------------------------------- selection and summary


def worth(rollouts: Sequence[Sequence[float]]) -> float:
    """A scheme's return: the mean over its conversations of the best turn's reward."""
    return fmean(max(turns) for turns in rollouts)


def worth_variance(rollouts: Sequence[Sequence[float]]) -> float:
    """Sampling variance of `worth`: that of a mean over conversations; 0 if there is only one."""
    best = [max(turns) for turns in rollouts]
    return variance(best) / len(best) if len(best) > 1 else 0.0


def selections(schemes: Sequence[tuple[frozenset[str], float]], null: float | None) -> list[float]:
    """Advantages of a task's selections: a scheme's worth over the mean of the null scheme and the other schemes.

    The same skills chosen twice are one choice played twice: such schemes share their mean worth, and are not peers of
    each other. A choice of no skills is the null scheme. Without other peers a selection is compared with the null scheme alone.

    Args:
        schemes: the skills chosen and the worth of playing with them.
        null: the worth of playing without skills; None if it was not played.
    """
    mean = pooled([*schemes, *([(frozenset[str](), null)] if null is not None else [])])
    result = []
    for chosen, _ in schemes:
        others = [value for other, value in mean.items() if other != chosen]
        result.append(mean[chosen] - fmean(others) if others else 0.0)
    return result


def pooled(schemes: Sequence[tuple[frozenset[str], float]]) -> dict[frozenset[str], float]:
    """Mean value by the skills chosen."""
    groups: dict[frozenset[str], list[float]] = defaultdict(list)
    for chosen, value in schemes:
        groups[chosen].append(value)
    return {chosen: fmean(values) for chosen, values in groups.items()}


# ---------------------------------------------------------------- rejection


def coverage_mask(
    coverage: float | None, draw: float, least: float = 0.3, width: float = 0.1
) -> bool:
    """Profiling rejection sampling (PRS): keep a right turn with probability clamp((coverage − least) / width, 0, 1).

    Args:
        coverage: share of device time in the candidate's kernels; None (not measured) keeps the turn.
        draw: uniform in [0, 1).
        least: daVinci: 0.3.
        width: daVinci: 0.1.
    """
    if coverage is None:
        return True
    return draw < min(1.0, max(0.0, (round(coverage, 2) - least) / width))


def band(num_tokens: int, least: float, spread: float) -> float:
    """Half-width of the admitted mean log-ratio of learner and sampler for an answer of so many tokens.

    Rounding makes each token's log-ratio noise of deviation `spread`, the mean of n of them spread/√n: a fixed band of
    ±0.001 rejects most short answers although nothing is wrong. Three deviations are admitted.
    """
    return max(least, 3 * spread / math.sqrt(max(1, num_tokens)))


def mismatch_mask(
    learner: Sequence[float], sampler: Sequence[float], least: float, spread: float, veto: float
) -> bool:
    """Mismatch rejection (MRS): whether the learner gives the answer about the probability that the sampler drew it with.

    Args:
        learner: log-probabilities of the answer's tokens under the weights to be updated.
        sampler: the same under the sampler's weights.
        least: see `band`; daVinci: 0.001.
        spread: see `band`.
        veto: an answer with a token whose probability is below this fraction of the sampler's is dropped; daVinci: 1e-4.
    """
    if not sampler:
        return True
    gaps = [a - b for a, b in zip(learner, sampler, strict=True)]
    if not all(math.isfinite(g) for g in gaps) or min(gaps) < math.log(veto):
        return False
    return abs(fmean(gaps)) <= band(len(gaps), least, spread)


def corrections(learner: Sequence[float], sampler: Sequence[float], cap: float) -> list[float]:
    """Truncated importance weights min(π_learner / π_sampler, cap), a token; the alternative to rejection."""
    return [min(math.exp(min(a - b, 50.0)), cap) for a, b in zip(learner, sampler, strict=True)]
