"""A task with its graph, and a model that counts its answers."""

from __future__ import annotations

from dvk.backbone import Conversation
from dvk.composer import CapturedGraph
from dvk.records import Graph, Node, Task
from tests.agents.conftest import Said, fenced

TASK = Task(id="t", name="t", source="class Model: ...", entry="Model", kind="module")

VECTOR = {"shape": (8,), "dtype": "float32", "strides": (1,)}

NODES = (
    Node(name="x0", op="input", target="x", **VECTOR),
    Node(name="v0", op="aten.relu.default", args=({"ref": "x0"},), **VECTOR),
)

CAPTURED = CapturedGraph(graph=Graph(nodes=NODES, outputs={"ref": "v0"}), arguments=("x",))


def counting() -> Said:
    """A model that selects `a` and otherwise writes a new program each time."""
    numbers = iter(range(10**6))

    def answer(conversation: Conversation) -> str:
        if conversation.tools:
            return '{"name": "select_skills", "arguments": {"selected_skills": [{"name": "a", "reason": ""}]}}'
        return fenced(f"class ModelNew: number = {next(numbers)}\n")

    return Said(answer)
