"""The selection agent: chooses the library's skills that a task is written with."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from dvk.agents.dialects import Dialect
from dvk.agents.evidence.offered import offered
from dvk.agents.reading import MalformedAnswer
from dvk.agents.task_context import TaskContext
from dvk.backbone import Completion
from dvk.config import AgentsConfig
from dvk.records import Skill, Task
from dvk.skills import Library, query_from_graph
from dvk.skills.graphs import QUERY_TERMS

BESIDE = 2
"""Hits looked at for each skill offered: the conditions of some do not hold."""
_SPOKEN_FOR = frozenset("F functional nn torch special".split())
"""Names that operators and layers are attributes of."""
_SILENT = frozenset(
    "Buffer Module ModuleDict ModuleList Parameter Sequential Tensor arange append bool compile contiguous cpu cuda device double empty "
    "expand flatten float float16 float32 float64 format full functional get half init int int64 items keys long manual_seed nn no_grad "
    "numel ones ones_like parameters permute rand randint randn randperm register_buffer register_parameter reshape shape size special "
    "squeeze stack super tensor to transpose unsqueeze update values view zeros zeros_like".split()
)
"""Names without information on technique: they make, move and describe tensors."""


@dataclass(frozen=True)
class Selected:
    """A parsed selection answer."""

    skills: tuple[Skill, ...] = ()
    """Chosen, in the order given; empty also if the model chose none."""
    dropped: tuple[str, ...] = ()
    """Ignored parts of the answer, each with the reason."""
    malformed: str | None = None
    """The parse error; null if there was none."""


def candidates(subject: TaskContext, library: Library, settings: AgentsConfig) -> list[Skill]:
    """Skills for a task: BM25 hits whose condition holds, those that have gained on this machine first; empty without a match.

    The query is the graph's operators in the library's vocabulary and the operators that the source names, rarest first:
    no text of a prompt, no number, no name chosen by the author.
    """
    if settings.num_candidates == 0:
        return []
    words = source_words(subject.task)
    frequency = {word: library.frequency(word) for word in words}
    telling = sorted((word for word in words if frequency[word]), key=lambda word: frequency[word])[
        :QUERY_TERMS
    ]
    graph = (
        query_from_graph(subject.captured.graph, library, QUERY_TERMS)
        if subject.captured is not None
        else ""
    )
    query = f"{graph} {' '.join(telling)}"
    hits = library.search(query, BESIDE * settings.num_candidates, snippets=False)
    return offered(subject, [hit.skill for hit in hits])[: settings.num_candidates]


def source_words(task: Task) -> list[str]:
    """The distinct operators and layers in a reference's code: `nn.GroupNorm` → GroupNorm, `F.silu` → silu,
    `x.softmax(-1)` → softmax. The author's names (`self.scale`) and weight initialisation (`nn.init`) are left out."""
    try:
        tree = ast.parse(task.source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _last(node.value) in _SPOKEN_FOR:
            names[node.attr] = None
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and _last(node.func.value) not in ("self", "init")
        ):
            names[node.func.attr] = None
    return [
        name for name in names if name not in _SILENT and not name.endswith("_") and len(name) > 1
    ]


def _last(node: ast.expr) -> str | None:
    """`torch.nn.functional` → functional; a name → itself; anything else → None."""
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else None
    )


def read(
    dialect: Dialect, answer: Completion, offered: Sequence[Skill], settings: AgentsConfig
) -> Selected:
    """The skills that an answer names, of those offered: unknown names, repetitions and surplus ones are dropped.

    An answer that names skills, none of them offered, is malformed; one that chooses none is not.
    """
    by_name = {skill.name: skill for skill in offered}
    try:
        named = dialect.read_selection(answer, list(by_name), settings)
    except MalformedAnswer as error:
        return Selected(malformed=str(error))
    chosen: dict[str, Skill] = {}
    dropped = []
    for name in named:
        if name not in by_name:
            dropped.append(f"{name[:60]}: not offered")
        elif name in chosen:
            dropped.append(f"{name}: named twice")
        elif len(chosen) == settings.num_chosen:
            dropped.append(f"{name}: more than {settings.num_chosen}")
        else:
            chosen[name] = by_name[name]
    if named and not chosen:
        return Selected(
            dropped=tuple(dropped),
            malformed=f"none of the names was offered: {', '.join(named)[:80]}",
        )
    return Selected(tuple(chosen.values()), tuple(dropped))
