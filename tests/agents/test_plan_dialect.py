"""The dialect of plans: what it asks, that every measured plan can be answered, what an unreadable answer is worth."""

from __future__ import annotations

import pytest

from dvk.agents import policy
from dvk.agents.dialects import get
from dvk.agents.dialects.plan import PlanDialect, space_of
from dvk.agents.task_context import TaskContext
from dvk.backbone import Completion
from dvk.composer import Plan
from dvk.composer.capture.export import trace
from dvk.config import AgentsConfig, Config
from dvk.records import Candidate
from dvk.search import SearchProblem
from dvk.search.stratified import plans
from dvk.tasks import load

SETTINGS = AgentsConfig()


@pytest.fixture(scope="module")
def subject() -> TaskContext:
    task = load("data/tasks/examples/mlp_head.py", device="cpu")
    return TaskContext(task, trace(task), "cpp")


def asked(subject: TaskContext) -> list[str]:
    (message,) = get("plan").policy(subject, (), SETTINGS).messages
    return str(message["content"]).splitlines()


def read(subject: TaskContext, text: str, finish: str = "stop") -> Candidate | str:
    answer = Completion(text=text, finish=finish)  # type: ignore[arg-type]
    return policy.read(get("plan"), subject, answer, "nano", (), "")


def test_the_question_lists_what_can_be_chosen(subject: TaskContext) -> None:
    lines = asked(subject)
    at = next(n for n, line in enumerate(lines) if line.startswith("recipes "))
    assert "-fuse_rowwise" in lines[at].split() and "+own_matmul" in lines[at].split()
    space = space_of(subject)
    named = [name for line in lines[at + 1 : -1] for name in line.split() if name[0] == "k"]
    assert sorted(named) == sorted(k.name for k in space.fused(space.default.recipes).ordered)
    assert lines[-1] == "plan" and all("=" in line for line in lines[at + 1 : -1])


def test_every_measured_plan_can_be_answered(subject: TaskContext) -> None:
    assert subject.captured is not None
    problem = SearchProblem(subject.task, subject.captured, "cpp", (), Config())
    for _, candidate in plans(problem, 6, seed=1):
        text = space_of(subject).text(Plan.of(candidate))
        found = read(subject, text + "\nwhat follows is not read")
        assert isinstance(found, Candidate) and found.id == candidate.id, text
        assert found.title == text.replace("\n", "; ")


def test_an_unreadable_answer_says_where_it_went_wrong(subject: TaskContext) -> None:
    text = "plan +own_matmul\nk0 = parallel rows chunk 4096 width 7"
    assert "line 2" in str(read(subject, text)) and "width" in str(read(subject, text))
    reply = policy.parse_reply(PlanDialect(), subject, Completion(text="plan +gold", finish="stop"))
    assert isinstance(reply, policy.Reply) and reply.shown == len("plan +gold")
    assert "cut at the token limit" in str(read(subject, "plan", "length"))
    assert read(subject, " ") == "an empty answer"
