"""Which tasks are like another: by operator families, from graphs or sources."""

from __future__ import annotations

import pytest

from dvk.agents.similar_tasks import most_similar, task_similarity
from dvk.agents.task_context import TaskContext
from dvk.composer import CapturedGraph
from dvk.records import Graph, Node, Task


def subject(name: str, *operators: str, words: str = "") -> TaskContext:
    """A task whose graph has some operators and whose source calls `words`; without operators it has no graph."""
    nodes = tuple(Node(name=f"v{n}", op=f"aten.{op}.default") for n, op in enumerate(operators))
    source = "\n".join(f"x = F.{word}(x)" for word in words.split())
    task = Task(id=name, name=name, source=source, entry="Model", kind="module")
    return TaskContext(
        task,
        CapturedGraph(graph=Graph(nodes=nodes, outputs=None), arguments=("x",))
        if operators
        else None,
        "cpp",
    )


def test_families_not_spellings() -> None:
    one = subject("a", "mm", "relu", "view")
    assert task_similarity(one, subject("b", "addmm", "reshape", "relu")) == 1.0
    assert task_similarity(one, subject("c", "linear", "gelu")) == pytest.approx(1 / 3)
    assert task_similarity(one, subject("d", "convolution")) == 0.0


def test_sources_where_a_graph_is_missing() -> None:
    one = subject("a", "mm", "relu", words="linear relu")
    assert task_similarity(one, subject("b", words="linear relu")) == 1.0
    assert task_similarity(one, subject("c", words="linear gelu")) == pytest.approx(1 / 3)
    assert task_similarity(subject("d"), subject("e")) == 0.0


def test_the_nearest_and_never_itself() -> None:
    pool = {
        s.task.id: s
        for s in (
            subject("own", "mm", "relu", "sum"),
            subject("far", "convolution"),
            subject("near", "mm", "relu"),
            subject("same", "sum", "relu", "bmm"),
            subject("half", "mm", "gelu"),
        )
    }
    assert most_similar("own", pool, 2, 0.2) == ["same", "near"]
    assert most_similar("own", pool, 9, 0.2) == ["same", "near", "half"]
    assert most_similar("own", pool, 9, 0.5) == ["same", "near"]
    assert most_similar("own", pool, 0, 0.0) == []


def test_equals_differ_from_task_to_task() -> None:
    """Ties are broken differently for each task."""
    pool = {f"t{n}": subject(f"t{n}", "relu") for n in range(12)}
    chosen = [tuple(most_similar(name, pool, 2, 0.5)) for name in pool]
    assert all(name not in pair and len(pair) == 2 for name, pair in zip(pool, chosen, strict=True))
    assert len(set(chosen)) > 6 and chosen[0] == tuple(
        most_similar("t0", dict(reversed(pool.items())), 2, 0.5)
    )


def test_earlier_tasks_fill_what_the_step_s_own_lack() -> None:
    step = {
        s.task.id: s
        for s in (
            subject("own", "mm", "relu"),
            subject("far", "convolution"),
            subject("half", "mm", "gelu"),
        )
    }
    beside = {
        s.task.id: s
        for s in (
            subject("same", "bmm", "relu"),
            subject("half", "mm", "gelu"),
            subject("far2", "sum"),
        )
    }
    assert most_similar("own", step, 2, 0.2) == ["half"]
    assert most_similar("own", step, 2, 0.2, beside) == ["half", "same"]
    assert most_similar("own", step, 1, 0.2, beside) == ["half"]
