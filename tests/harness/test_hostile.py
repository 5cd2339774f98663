"""Answers no honest kernel gives: each ends in exactly one verdict, and the judge's process lives and then judges right."""

from __future__ import annotations

import pytest

from dvk import tasks
from dvk.config import Config
from dvk.harness.session.judge_session import JudgeSession
from dvk.records import Candidate, Status, Task, Verdict
from tests.harness import hostile

CONFIG = Config.model_validate(
    {
        "limits": {"memory_bytes": 2 << 30, "num_processes": 100, "output_bytes": 8192},
        "judge": {"candidate_s": 6, "search_s": 0.02, "num_seeds": 1},
    }
)
REFERENCE = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
def get_inputs():
    return [torch.randn(64, 256)]
"""
HONEST = hostile.HEAD.format(more="", body="    return y", first=1)
SOURCES = hostile.every()
QUICK = ("quantised-alone", "half_a_file-alone", "bits8-alone", "data_ptr_text-alone")


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> Task:
    file = tmp_path_factory.mktemp("task") / "softmax.py"
    file.write_text(REFERENCE)
    return tasks.load(str(file))


def judge(session: JudgeSession, source: str, tier: str = "smoke") -> Verdict:
    verdict = session.judge(Candidate(source=source, backend="cpp"), tier)  # type: ignore[arg-type]  # one of its names
    assert verdict is not None
    return verdict


def problem(court: JudgeSession, name: str) -> str | None:
    """Error of the judgement of one answer."""
    session = court._referee._session
    verdict = judge(court, SOURCES[name], "search" if name.endswith("late") else "smoke")
    if session is not None and court._referee._session is not session:
        return f"the judging process ended: {verdict.error}"
    right = name.split("-")[0] in HARMLESS
    if verdict.status is Status.OK and not right:
        return "accepted"
    return None if verdict.status is Status.OK or verdict.error else "no reason"


HARMLESS = {
    "requires_grad",
    "parameter",
    "thread_raises",
    "alarms",
    "closes_output",
    "dtype_lies",
    "detach_lies",
    "hides_heap",
}
"""May be right: what is returned is."""


def test_there_are_more_than_two_hundred() -> None:
    assert len(SOURCES) > 200
    for name, source in SOURCES.items():
        compile(source, name, "exec")


def test_what_ended_the_judge_is_a_verdict(task) -> None:
    with JudgeSession(task, CONFIG) as session:
        assert judge(session, HONEST).status is Status.OK
        assert {name: found for name in QUICK if (found := problem(session, name))} == {}
        assert judge(session, HONEST).status is Status.OK


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_every_answer_ends_in_one_verdict(task, part: int) -> None:
    with JudgeSession(task, CONFIG) as session:
        assert judge(session, HONEST).status is Status.OK
        found = {}
        for number, name in enumerate(list(SOURCES)[part::4]):
            if wrong := problem(session, name):
                found[name] = wrong
            if number % 20 == 19:
                assert judge(session, HONEST).status is Status.OK, name
        assert judge(session, HONEST, "search").status is Status.OK
    assert found == {}
