"""Shared by the agents' tests: skills, a library, task contexts, and a backbone whose answers a test writes as a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from dvk import composer, tasks
from dvk.backbone import Completion, Conversation, Sampling, TokenUsage
from dvk.composer.capture.export import trace
from dvk.config import Config
from dvk.records import Interval, Skill, Status, Task, Timing, Turn, Verdict
from dvk.skills import Library

FILES = Path(__file__).parent.parent / "harness" / "files"

QUICK = Config.model_validate(
    {
        "limits": {"memory_bytes": 2 << 30, "num_processes": 100, "output_bytes": 8192},
        "judge": {"candidate_s": 30, "search_s": 0.05, "num_seeds": 1, "search_pairs": 5},
        "rollout": {"schemes": 0, "rollouts": 1, "turns": 2, "summaries": 0, "temperature": 0.0},
    }
)


def configured(**rollout: object) -> Config:
    """QUICK with other rollout settings."""
    return Config.model_validate(
        {**QUICK.model_dump(), "rollout": {**QUICK.rollout.model_dump(), **rollout}}
    )


@cache
def affine() -> Task:
    """The reference `relu(x) * 2 + 1` of the harness's tests."""
    return tasks.load(str(FILES / "affine.py"))


@cache
def captured() -> composer.CapturedGraph:
    """Its graph."""
    return trace(affine())


def source(name: str) -> str:
    """The text of a candidate of the harness's tests, e.g. `good/cpp_affine`."""
    return (FILES / f"{name}.py").read_text()


def fenced(code: str) -> str:
    """An answer of the chat dialect."""
    return f"I would write this.\n\n```python\n{code}```\nThat is all."


class Said:
    """A backbone whose answers are a function of the conversation: a text, or a whole completion."""

    def __init__(self, answer: Callable[[Conversation], str | Completion], dialect: str = "chat"):
        self.name, self.dialect, self.usage = "said", dialect, TokenUsage()
        self.answer = answer
        self.calls: list[tuple[list[Conversation], Sampling]] = []

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        self.calls.append((list(conversations), sampling))
        said = [self.answer(conversation) for conversation in conversations]
        return [
            Completion(text=one, finish="stop") if isinstance(one, str) else one for one in said
        ]


def make_skill(name: str, **fields: object) -> Skill:
    """A skill; its fields matter only if the test says so."""
    idea, when = (
        f"## Key Idea\nDo {name} in one sweep. Then more.",
        "## When it pays\nOn long rows. Not else.",
    )
    body = f"## Motivation\nSlow.\n\n{idea}\n\n{when}\n\n## Example\nx"
    return Skill.model_validate(
        {"name": name, "description": f"about {name}", "body": body, **fields}
    )


def ok(speedup: float | None) -> Verdict:
    """A correct verdict, timed unless None."""
    if speedup is None:
        return Verdict(
            status=Status.OK,
            tier="search",
            stage="done",
            untimed_reason="no clock here",
            num_checks=3,
            machine="here",
        )
    exact = Interval(value=speedup, lo=speedup * 0.98, hi=speedup * 1.02)
    timing = Timing(
        candidate_ms=1 / speedup, reference_ms=1.0, speedup=exact, num_pairs=9, seconds=0.1
    )
    return Verdict(
        status=Status.OK, tier="search", stage="done", timing=timing, num_checks=3, machine="here"
    )


def wrong(status: Status = Status.MISMATCH, error: str = "off", **fields: object) -> Verdict:
    """A verdict that is not ok."""
    return Verdict.model_validate(
        {
            "status": status,
            "tier": "search",
            "stage": "check",
            "error": error,
            "machine": "here",
            **fields,
        }
    )


def turn(
    verdict: Verdict | None, completion: str = "an answer", malformed: str | None = None
) -> Turn:
    """A turn of the policy."""
    return Turn(
        messages=({"role": "user", "content": "?"},),
        completion=completion,
        verdict=verdict,
        malformed=malformed,
    )


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """An empty library."""
    with Library.open(tmp_path / "skills.db", create=True) as opened:
        yield opened
