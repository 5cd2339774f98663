"""Tasks that resemble another: a skill learned on one is also tried on these, to see whether it generalises.

Similarity is the Jaccard similarity of two tasks' operator families (`dvk.taskgen.split`): spelling, sizes, order and
views do not count. If one of the two has no graph, the operators that their sources name are compared instead.

A step's tasks come first; if they are not similar enough, the `SimilarTasks` of earlier steps is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dvk.agents.selection import source_words
from dvk.agents.task_context import TaskContext
from dvk.composer import CapturedGraph
from dvk.records import Episode, Status, Task, content_hash
from dvk.taskgen.split import signature_of


class SimilarTasks:
    """Tasks of earlier steps on which something right was written: on a task where all fail, a trial has no result.

    Args:
        most: how many are kept, the latest.
    """

    def __init__(self, most: int):
        self.most = most
        self._held: dict[str, TaskContext] = {}

    @property
    def subjects(self) -> Mapping[str, TaskContext]:
        """By task id, the oldest first."""
        return self._held

    def add(self, episodes: Iterable[Episode], subjects: Mapping[str, TaskContext]) -> None:
        """Add played tasks; `subjects` by task id."""
        for episode in episodes:
            turns = (
                turn for trace in episode.traces if trace.role == "policy" for turn in trace.turns
            )
            if any(turn.verdict is not None and turn.verdict.status is Status.OK for turn in turns):
                self._held.pop(episode.task.id, None)
                self._held[episode.task.id] = subjects[episode.task.id]
        for old in list(self._held)[: max(0, len(self._held) - self.most)]:
            del self._held[old]

    def records(self) -> Iterator[dict[str, Any]]:
        """As JSON, for `restore`."""
        for held in self._held.values():
            graph = held.captured.model_dump(mode="json") if held.captured is not None else None
            yield {
                "task": held.task.model_dump(mode="json"),
                "captured": graph,
                "backend": held.backend,
            }

    def restore(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replace the content by that of `records`."""
        self._held = {}
        for record in records:
            captured = (
                CapturedGraph.model_validate(record["captured"])
                if record["captured"] is not None
                else None
            )
            subject = TaskContext(Task.model_validate(record["task"]), captured, record["backend"])
            self._held[subject.task.id] = subject


def most_similar(
    task: str,
    subjects: Mapping[str, TaskContext],
    count: int,
    least: float,
    beside: Mapping[str, TaskContext] | None = None,
) -> list[str]:
    """Ids of the tasks most like another, the most alike first; never itself.

    Args:
        task: id of that task, one of `subjects`.
        subjects: by task id.
        count: at most so many.
        least: similarity below which a task is no sibling.
        beside: fallback for siblings that `subjects` lack, by task id.
    """
    own = subjects[task]
    ids: list[str] = []
    for others in (subjects, beside or {}):
        near = {
            other: task_similarity(own, subject)
            for other, subject in others.items()
            if other != task
        }
        # Ties are broken by a hash of both, so that not every task has the same siblings.
        ordered = sorted(near, key=lambda other: (-near[other], content_hash(task, other)))
        ids += [other for other in ordered if near[other] >= least and other not in ids]
    return ids[:count]


def task_similarity(one: TaskContext, other: TaskContext) -> float:
    """Similarity from 0, no operator in common, to 1, the same families; 0 also if nothing is known of either."""
    graphs = one.captured is not None and other.captured is not None
    a, b = (_families(subject, graphs) for subject in (one, other))
    return len(a & b) / len(a | b) if a | b else 0.0


def _families(subject: TaskContext, graphs: bool) -> frozenset[str]:
    if graphs:
        assert subject.captured is not None
        return frozenset(signature_of(subject.captured.graph.signature()))
    return frozenset(signature_of(word.lower() for word in source_words(subject.task)))
