"""Trials of skills on tasks whose verdicts are recorded, with models that apply what they are taught."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dvk.agents.task_context import TaskContext
from dvk.agents.trials import Proposal
from dvk.backbone import Conversation
from dvk.config import Config
from dvk.harness.queue import JudgeQueue
from dvk.harness.session.verdict_cache import Remembered, key
from dvk.records import Candidate, Skill, Task, Verdict
from tests.agents.conftest import QUICK, Said, fenced

FLAGS = {"backward": False, "require_kernels": False, "contract": "module"}


def configured(**trials: object) -> Config:
    return Config.model_validate(
        {**QUICK.model_dump(), "trials": {"samples": 3, "siblings": 2, **trials}}
    )


def subject(name: str, words: str = "relu sigmoid") -> TaskContext:
    """A task that is never built: its verdicts are recorded."""
    text = "\n".join(f"x = F.{word}(x)  # of {name}" for word in words.split())
    return TaskContext(
        Task(id=name, name=f"the {name}", source=text, entry="Model", kind="module"), None, "cpp"
    )


THREE = {
    s.task.id: s
    for s in (
        subject("own"),
        subject("brother"),
        subject("cousin", "relu tanh"),
        subject("stranger", "conv2d"),
    )
}
TAUGHT, PLAIN = "class ModelNew: 'with the skill'", "class ModelNew: 'without'"


def skill(name: str) -> Skill:
    """One that has few words in common with another."""
    return Skill(
        name=name,
        description=f"{name} first",
        body=f"## Key Idea\n{name} second\n\n## When it pays\n{name} third",
    )


def proposal(
    name: str, task: str = "own", sample: int = 0, given: tuple[str, ...] = ()
) -> Proposal:
    return Proposal(skill(name), task, sample, given)


def teachable(*names: str) -> Said:
    """A model that applies its lesson if one of `names` is in its prompt; every sample is another text."""
    count = iter(range(10**6))

    def answer(conversation: Conversation) -> str:
        taught = any(name in conversation.messages[-1]["content"] for name in names)
        return fenced(f"{TAUGHT if taught else PLAIN} + '{next(count) % 3}'\n")

    return Said(answer)


class Held(Remembered):
    """Recorded verdicts that are handed out only while `go` is set."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.go = threading.Event()
        self.go.set()

    def recall(self, asked: str) -> Verdict | None:
        assert self.go.wait(30), "it was never resumed"
        return super().recall(asked)


Recorder = Callable[[Callable[[Task, bool], Verdict]], JudgeQueue[Any]]


@contextmanager
def recording(path: Path) -> Iterator[Recorder]:
    """A judge that has judged every candidate of `teachable` before: verdicts by task, and whether the model was taught."""
    opened: list[JudgeQueue[Any]] = []

    def record(verdict: Callable[[Task, bool], Verdict]) -> JudgeQueue[Any]:
        known = Held(path)
        for one in THREE.values():
            for text in (TAUGHT, PLAIN):
                for number in range(3):
                    candidate = Candidate(source=f"{text} + '{number}'\n", backend="cpp")
                    known.remember(
                        key(one.task, candidate, "search", (), QUICK, flags=FLAGS),
                        verdict(one.task, text == TAUGHT),
                    )
        opened.append(JudgeQueue(2, QUICK, known))
        return opened[-1]

    yield record
    for one in opened:
        one.close()


def asked(backbone: Said) -> list[str]:
    return [c.messages[-1]["content"] for conversations, _ in backbone.calls for c in conversations]
