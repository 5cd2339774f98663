"""Best steps: only the revisions that made correct code faster, one for each parent (Kernel-Smith, arXiv 2603.28342).

A long search teaches more by its few successful revisions than by all attempts.
"""

from __future__ import annotations

from collections.abc import Iterable

from dvk.learn.examples import Example

MIN_GAIN = 1.05
"""Speedup over the parent at which a step counts: timing noise between two searches reaches a few percent."""


def gain(example: Example, speedups: dict[str, float]) -> float | None:
    """Speedup of the example's code over its parent; None if unknown.

    The parent is the example it names or, in a conversation of several turns, the best correct turn before the last.
    Without a correct predecessor there is no improvement. The lower end of the child's interval counts, if known.

    Args:
        speedups: of examples by id.
    """
    mine = example.lo if example.lo is not None else example.speedup
    if mine is None:
        return None
    if example.parent is not None:
        before = speedups.get(example.parent) or example.quality.get("parent_speedup")
    else:
        before = max(
            (value for value in example.round_speedups[:-1] if value is not None), default=None
        )
    return mine / before if isinstance(before, (int, float)) and before > 0 else None


def best_steps(examples: Iterable[Example], min_gain: float = MIN_GAIN) -> list[Example]:
    """The improving steps among policy examples, in the order given: for each parent the child with the largest gain.

    Args:
        min_gain: least ratio of the child's speedup to the parent's.
    """
    known = list(examples)
    speedups = {example.id: example.speedup for example in known if example.speedup is not None}
    best: dict[tuple[str, str], tuple[float, int, str]] = {}
    for example in known:
        if example.kind not in ("policy", "policy_with_skills"):
            continue
        gained = gain(example, speedups)
        if gained is not None and gained >= min_gain:
            # A conversation is its own parent: each one is a step.
            key = (example.task.id, example.parent or example.id)
            best[key] = max(best.get(key, (0.0, 0, "")), (gained, -len(example.code), example.id))
    chosen = {example_id for _, _, example_id in best.values()}
    return [example for example in known if example.id in chosen]
