"""A search whose planner proposes moves on softmax(2 · linear(x))."""

from __future__ import annotations

from dvk.backbone import Conversation
from dvk.composer import CapturedGraph
from dvk.records import Graph, Node, Task, Trace
from dvk.search import SearchProblem
from tests.agents.conftest import QUICK, Said, make_skill

ROWS, WIDTH, INNER = 64, 512, 96


def _node(name: str, op: str, shape: tuple[int, ...], *args: object, **fields: object) -> Node:
    strides = (
        tuple(WIDTH if size == ROWS else 1 for size in shape) if shape[-1] == WIDTH else (INNER, 1)
    )
    return Node.model_validate(
        {
            "name": name,
            "op": op,
            "shape": shape,
            "dtype": "float32",
            "strides": strides,
            "args": args,
            **fields,
        }
    )


def ref(name: str) -> dict[str, str]:
    return {"ref": name}


GRAPH = Graph(
    outputs=ref("v2"),
    nodes=(
        _node("x0", "input", (ROWS, INNER), target="x"),
        _node("p0", "param", (WIDTH, INNER), target="weight"),
        _node("v0", "aten.linear.default", (ROWS, WIDTH), ref("x0"), ref("p0")),
        _node("v1", "aten.mul.Tensor", (ROWS, WIDTH), ref("v0"), 2.0),
        _node("v2", "aten.softmax.int", (ROWS, WIDTH), ref("v1"), -1),
    ),
)
"""softmax(2 · linear(x))"""
TASK = Task(id="t", name="t", source="class Model: ...", entry="Model", kind="module")


def problem(backbone: Said | None, kept: list[Trace] | None = None) -> SearchProblem:
    keep = kept.append if kept is not None else lambda trace: None
    skills = (
        make_skill(
            "lay",
            recipe="inplace_epilogue",
            body="## When it pays\nOn large results.\n\n## Key Idea\nWrite over them.\n",
        ),
    )
    given = CapturedGraph(graph=GRAPH, arguments=("x",))
    return SearchProblem(TASK, given, "cpp", skills, QUICK, backbone, keep)  # type: ignore[arg-type]  # a test's own backbone


def says(*answers: str) -> Said:
    """A planner that gives these answers one after another, then nothing."""
    left = iter(answers)
    return Said(lambda _: next(left, "I am done."))


def questions(model: Said) -> list[Conversation]:
    return [conversation for conversations, _ in model.calls for conversation in conversations]
