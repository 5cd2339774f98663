"""Tasks that resemble another: what a skill learned on one is also tried on, so that it is not that task's alone.

Likeness is the Jaccard similarity of two tasks' operator families (`dvk.tasks.generate.split`): spelling, sizes, order and
views do not count. Where one of the two has no graph, the operators that their sources name are compared instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from dvk.agents.selection import source_words
from dvk.agents.showing import Subject
from dvk.records import content_hash
from dvk.tasks.generate.split import signature_of


def nearest(task: str, subjects: Mapping[str, Subject], count: int, least: float) -> list[str]:
    """Ids of the tasks most like another, the most alike first; never itself.

    Args:
        task: id of that task, one of `subjects`.
        subjects: by task id.
        count: at most so many.
        least: likeness below which a task is no sibling.
    """
    own = subjects[task]
    near = {other: likeness(own, subject) for other, subject in subjects.items() if other != task}
    # Equals are told apart by a hash of both, so that not every task has the same siblings.
    ordered = sorted(near, key=lambda other: (-near[other], content_hash(task, other)))
    return [other for other in ordered[:count] if near[other] >= least]


def likeness(one: Subject, other: Subject) -> float:
    """From 0, no operator in common, to 1, the same families; 0 also where nothing is known of either."""
    graphs = one.captured is not None and other.captured is not None
    a, b = (_families(subject, graphs) for subject in (one, other))
    return len(a & b) / len(a | b) if a | b else 0.0


def _families(subject: Subject, graphs: bool) -> frozenset[str]:
    if graphs:
        assert subject.captured is not None
        return frozenset(signature_of(subject.captured.graph.signature()))
    return frozenset(signature_of(word.lower() for word in source_words(subject.task)))
