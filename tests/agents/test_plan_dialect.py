"""The dialect of plans: what it asks, that every measured plan can be answered, what an unreadable answer is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dvk.agents import policy, summary
from dvk.agents.dialects import get
from dvk.agents.dialects.plan import PlanDialect, space_of
from dvk.agents.task_context import TaskContext
from dvk.backbone import Completion
from dvk.composer import Plan
from dvk.composer.capture.export import trace
from dvk.config import AgentsConfig, Config
from dvk.records import Candidate, Skill, Trace, Turn
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


def test_an_answer_is_one_of_the_plans_that_would_be_measured(subject: TaskContext) -> None:
    assert subject.captured is not None
    asked = get("plan").policy(subject, (), SETTINGS)
    assert asked.choices[0] == "plan" and len(set(asked.choices)) == len(asked.choices) == 24
    problem = SearchProblem(subject.task, subject.captured, "cpp", (), Config())
    measured = [space_of(subject).text(Plan.of(c)) for _, c in plans(problem, 24, seed=0)]
    assert set(measured[:20]) <= set(asked.choices), "those of the table's seed"
    known = replace(subject, answers=("plan", "plan +own_matmul"))
    assert get("plan").policy(known, (), SETTINGS).choices == known.answers
    tried = Turn(messages=(), completion="plan", finish="stop")
    again = policy.build_prompt(get("plan"), known, (), [tried], SETTINGS)
    assert again.choices == ("plan +own_matmul",)
    both = [tried, tried.model_copy(update={"completion": "plan +own_matmul"})]
    assert policy.build_prompt(get("plan"), known, (), both, SETTINGS).choices == known.answers


def test_a_selection_is_a_set_of_the_skills_offered(subject: TaskContext) -> None:
    skills = [Skill(name=name, description="d", body="b") for name in ("a", "b", "c")]
    dialect = get("plan")
    asked = dialect.selection(subject, skills, SETTINGS)
    told = [
        dialect.read_selection(Completion(text=text, finish="stop"), ["a", "b", "c"], SETTINGS)
        for text in asked.choices
    ]
    pairs = [["a", "b"], ["a", "c"], ["b", "c"]]
    assert told == [[], ["a"], ["b"], ["c"], *pairs]


def test_every_measured_plan_can_be_answered(subject: TaskContext) -> None:
    assert subject.captured is not None
    problem = SearchProblem(subject.task, subject.captured, "cpp", (), Config())
    for _, candidate in plans(problem, 6, seed=1):
        text = space_of(subject).text(Plan.of(candidate))
        found = read(subject, text + "\nwhat follows is not read")
        assert isinstance(found, Candidate) and found.id == candidate.id, text
        assert found.title == text.replace("\n", "; ")


@pytest.mark.parametrize(
    ("text", "finish", "means"),
    [
        (
            "plan +own_matmul +gold\nk0 = parallel rows chunk 4096 width 7",
            "stop",
            "plan +own_matmul",
        ),
        ("plan\nk99 = parallel rows chunk 64", "stop", "plan"),
        ("plan +own_matmul\nk0 = parallel", "length", "plan +own_matmul"),
        ("plan +own_mat", "length", "plan"),
        ("Let me think", "stop", "plan"),
        (" ", "stop", "plan"),
    ],
)
def test_no_answer_is_unreadable(subject: TaskContext, text: str, finish: str, means: str) -> None:
    found = read(subject, text, finish)
    assert isinstance(found, Candidate)
    assert found.id == PlanDialect().read_policy(subject, Completion(text=means, finish="stop")).id
    reply = policy.parse_reply(get("plan"), subject, Completion(text=text, finish="stop"))
    assert not policy.has_no_candidate(reply)


def test_skills_are_shown_in_the_words_of_plans_with_their_evidence(subject: TaskContext) -> None:
    entry = {"source": "table", "machine": "NVIDIA H100, torch 2", "backend": "cpp", "tasks": 14}
    entry |= {"gain": 1.09, "lo": 1.04, "hi": 1.15}
    found = Skill(
        name="own",
        description="d",
        body="b",
        when="has = linear",
        do="+own_matmul",
        evidence=(entry,),
    )
    (message,) = get("plan").selection(subject, (found,), SETTINGS).messages
    row = str(message["content"]).splitlines()[-2]
    assert row == "1 own | has = linear | +own_matmul | 14 tasks x1.09 [1.04, 1.15] on h100"
    (message,) = get("plan").policy(subject, (found,), SETTINGS).messages
    assert "skill own\nwhen has = linear\ndo +own_matmul\nplan" in str(message["content"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("skill a\nwhen has = linear\ndo +own_matmul", ""),
        ("none", ""),
        ("skill a\nwhen rows are long\ndo +own_matmul", "is no term"),
        ("skill a\nwhen always\ndo the whole row in registers", "is no change"),
    ],
)
def test_a_summary_proposes_blocks_or_is_malformed(
    subject: TaskContext, text: str, said: str
) -> None:
    trace_ = Trace(role="policy", skills=(), turns=())
    found = summary.read(
        get("plan"), subject, Completion(text=text, finish="stop"), trace_, SETTINGS, {}
    )
    assert said in (found.malformed or "") and bool(said) == (found.malformed is not None)
    if text.startswith("skill") and not said:
        (skill,) = found.skills
        assert (skill.when, skill.do) == ("has = linear", "+own_matmul")
