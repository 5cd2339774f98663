"""A model that writes programs on demand, and a judge that believes their claims: searches without a compiler.

A program states its speedup as `speed = 1.25`, or its error as `fault = "…"`; `kind` makes it unlike others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from dvk.backbone import Conversation
from dvk.composer import CapturedGraph
from dvk.records import Candidate, Graph, Skill, Status, Task, Trace, Verdict
from dvk.registry import resolve
from dvk.search import STRATEGIES, SearchProblem, writer
from tests.agents.conftest import QUICK, Said, fenced, ok, wrong

TASK = Task(id="t", name="t", source="class Model: ...", entry="Model", kind="module")
CAPTURED = CapturedGraph(graph=Graph(nodes=(), outputs=None), arguments=())
BODIES = (
    "for i in range(n): y[i] = x[i]",
    "while n: n -= 1",
    "y = torch.relu(x).sum(dim=1, keepdim=True)",
    "with torch.no_grad(): return F.linear(x, w) if b is None else x @ w + b",
    "return {k: v ** 2 for k, v in table.items()}",
    "assert x.is_contiguous() and y.stride(0) == 1; z = [a for a in x]",
    "try: lib.go(x.data_ptr(), n)\n  except OSError: raise",
    "yield from (lambda q: q << 3 | 1)(x[::2, None])",
)
"""Each unlike the others."""


def program(speed: float | None = None, kind: int = 0, fault: str = "", number: int = 0) -> str:
    """A source; `number` separates programs of equal kind by less than their kinds."""
    says = f'fault = "{fault}"' if fault else f"speed = {speed}"
    return f"class ModelNew:\n  {says}\n  number = {number}\n  {BODIES[kind]}\n"


def believed(candidate: Candidate) -> Verdict:
    """A program's statement about itself."""
    if (fault := re.search(r'fault = "(.*)"', candidate.source)) is not None:
        status = Status.COMPILE_ERROR if "error" in fault[1] else Status.MISMATCH
        return wrong(status, fault[1])
    speed = re.search(r"speed = ([\d.]+)", candidate.source)
    assert speed is not None
    return ok(float(speed[1]))


def fixed(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **constants: object) -> None:
    """Other values for a strategy's constants, for one test."""
    for name, value in constants.items():
        monkeypatch.setattr(module, name, value)


def problem(
    backbone: Said,
    skills: tuple[Skill, ...] = (),
    kept: list[Trace] | None = None,
    openings: int = 2,
    offspring: int = 2,
) -> SearchProblem:
    """A problem for `backbone`; its searches have so many openings and offspring (tests/search/conftest.py undoes that)."""
    writer.NUM_OPENINGS, writer.NUM_OFFSPRING = openings, offspring
    keep = kept.append if kept is not None else lambda trace: None
    return SearchProblem(TASK, CAPTURED, "cpp", skills, QUICK, backbone, keep)  # type: ignore[arg-type]  # a test's own backbone


def play(
    name: str,
    given: SearchProblem,
    judge: Callable[[Candidate], Verdict | None] = believed,
    batches: int = 30,
) -> Iterator[list[Candidate]]:
    """The batches of a strategy, to its end or to so many."""
    proposals = resolve(name, STRATEGIES, "strategy")(given)
    try:
        batch = next(proposals)
        for _ in range(batches):
            yield batch
            batch = proposals.send([judge(c) for c in batch])
    except StopIteration:
        return
    finally:
        proposals.close()


def asked(conversation: Conversation) -> str:
    """The last message."""
    return str(conversation.messages[-1]["content"])


def shown(text: str) -> list[float]:
    """Speeds of the programs in a prompt, in order; 0 for wrong ones."""
    versions = text.partition("Versions that exist")[2]
    return [
        float(s or 0) for s in re.findall(r"^  (?:speed = ([\d.]+)|fault = .*)$", versions, re.M)
    ]


def headed(text: str) -> list[float]:
    """Scores by which they are headed."""
    return [float(s) for s in re.findall(r"^### Version \d+: ([\d.]+)×", text, re.M)]


def writing(answers: Callable[[str], str]) -> Said:
    """A model that answers with the program that `answers` makes of the last message."""
    return Said(lambda conversation: fenced(answers(asked(conversation))))
