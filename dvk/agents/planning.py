"""The planner of strategy `macro`: its prompt on a plan, and the moves that it names.

A move is a (kind, region) pair, after MTMC (arXiv 2511.20100): the model says what to do and where, never how. Prompt,
schema and parser share one tool, `tools.plan_moves`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dvk import nanolang
from dvk.agents import feedback, notes, reading, task_context, tools
from dvk.agents.dialects.examples import TITLES
from dvk.agents.feedback import FEEDBACK_TOKENS
from dvk.agents.task_context import TASK_TOKENS, TaskContext
from dvk.backbone import Completion, Conversation
from dvk.records import Skill, Timing, Verdict

GRAPH = "graph"
"""The region of moves that concern the whole program."""
MAX_QUOTED = 60
"""Maximal length in characters of an unknown name in the error line."""

_SYSTEM = """\
You plan how a compiler makes a PyTorch module faster with {backend} kernels. You write no code: you name moves, each a kind \
and a region. The compiler carries a move out, chooses block sizes and the like, has the result checked and timed, and keeps \
it where the program became faster; else it is undone.

First think, in `think`: what takes the time (memory traffic, arithmetic, launches, calls left to PyTorch), and which moves would \
lower it. Then name legal moves, {most} at most, the most promising first. Each is tried on the plan that is the best at its turn.

Answer with one call of `plan_moves`, in English."""

_ASKED = """\
## The module

{task}

```
{listing}
```
{skills}
## The plan to go on from

{verdict}

## Regions, and the moves that are legal now

{regions}

## Moves made so far

{told}

Call `plan_moves` with at most {most} legal moves."""

_SKILLS = """
## What the library knows of such modules

{notes}
"""


class Move(NamedTuple):
    """The change, and its place."""

    kind: str
    region: str

    def __str__(self) -> str:
        return f"`{self.kind}` on `{self.region}`"


@dataclass(frozen=True)
class PlanRegion:
    """A part of the program with the moves that are legal there."""

    name: str
    facts: str
    kinds: Mapping[str, str]
    """Kind → its description."""

    def text(self) -> str:
        """A heading, the facts, a line a kind."""
        kinds = [f"- `{kind}`: {about}" for kind, about in self.kinds.items()] or [
            "(no move is left here)"
        ]
        return "\n".join([f"### {self.name}", self.facts, *kinds])


class NamedMoves(NamedTuple):
    """The parsed answer."""

    moves: tuple[Move, ...]
    refused: tuple[str, ...]
    """Ignored parts of the answer, each with the reason."""


def build_prompt(
    subject: TaskContext,
    regions: Sequence[PlanRegion],
    verdict: Verdict,
    best: Timing | None,
    told: Sequence[str],
    skills: Sequence[Skill],
    most: int,
) -> Conversation:
    """Ask for the next moves.

    Args:
        subject: with an operator graph.
        regions: regions of the plan to continue from.
        verdict: the plan's verdict.
        best: timing of the fastest plan, if that is another.
        told: one line a move or refusal, oldest first.
        skills: from the library, best first; shown as notes.
        most: moves an answer may name.
    """
    assert subject.captured is not None, "moves are the composer's"
    task = subject.task
    known = [notes.note(skill) for skill in skills]
    listing = nanolang.prompt(subject.captured.graph, task.device, subject.backend).strip()
    asked = _ASKED.format(
        task=f"`{task.entry}` on {task.device}, precision class {task.precision}; the operators, with their sizes by name:",
        listing=task_context.cut(listing, TASK_TOKENS),
        skills=_SKILLS.format(notes="\n".join(f"- {n.name}: when {n.when}: {n.do}" for n in known))
        if known
        else "",
        verdict=feedback.describe(verdict, FEEDBACK_TOKENS, best),
        regions="\n\n".join(region.text() for region in regions),
        told="\n".join(f"- {line}" for line in told) or "None.",
        most=most,
    )
    system = _SYSTEM.format(backend=TITLES[subject.backend], most=most)
    messages = ({"role": "system", "content": system}, {"role": "user", "content": asked})
    return Conversation(messages=messages, tools=(tools.plan_moves(most),))


def read(answer: Completion, most: int) -> NamedMoves:
    """The moves that an answer names, legal or not.

    Raises:
        MalformedAnswer: no call of the tool, or no moves in it.
    """
    items = reading.arguments(answer.text, answer.tool_calls, tools.plan_moves(most))["moves"]
    if not items:
        raise reading.MalformedAnswer("it names no move")
    moves: list[Move] = []
    refused = []
    for item in items[:most]:
        values = [
            item.get(key) if isinstance(item, Mapping) else None for key in ("kind", "region")
        ]
        kind, region = (
            " ".join(word.replace("`", " ").split()) if isinstance(word, str) else ""
            for word in values
        )
        move = Move(kind[:MAX_QUOTED], region[:MAX_QUOTED])
        if not (kind and region):
            refused.append(
                f"`{notes.line(str(item), MAX_QUOTED)}`: a move is an object with `kind` and `region`"
            )
        else:
            moves.append(move)
    if len(items) > most:
        refused.append(f"{len(items) - most} more: an answer names at most {most}")
    return NamedMoves(tuple(moves), tuple(refused))
