"""Skills weigh in a search: their evidence orders its plans and is added to; no plan is lost."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest

from dvk.composer.capture.export import trace
from dvk.composer.plan_change import graph_facts
from dvk.composer.plan_space import MEASURED
from dvk.config import Config
from dvk.records import Skill
from dvk.search import SearchProblem, device_of
from dvk.search.advised import searched
from dvk.search.composer import Planner
from dvk.skills import Library
from dvk.skills.searched import SearchedGain, add, with_searched
from dvk.tasks import load
from tests.agents.planted_table import ok

CONFIG = Config()
HERE = device_of(CONFIG, "cpu")


def skill(name: str, do: str, gain: float | None = None, when: str = "always") -> Skill:
    entry = {"source": "table", "machine": HERE, "backend": "cpp", "tasks": 20, "gain": gain}
    entry |= {"lo": gain and gain * 0.98, "hi": gain and gain * 1.02}
    return Skill(
        name=name,
        description="d",
        body="b",
        when=when,
        do=do,
        evidence=(entry,) if gain is not None else (),
    )


@pytest.fixture(scope="module")
def problem() -> SearchProblem:
    task = load("data/tasks/examples/mlp_head.py", device="cpu")
    return SearchProblem(task, trace(task), "cpp", (), CONFIG)


def planner(problem: SearchProblem, *skills: Skill, config: Config = CONFIG) -> Planner:
    assert problem.captured is not None
    return Planner(SearchProblem(problem.task, problem.captured, "cpp", skills, config))


def tried(order: list[str]) -> list[str]:
    return [recipe for recipe in order if recipe in MEASURED]


def test_evidence_orders_the_recipes_and_loses_none(problem: SearchProblem) -> None:
    usual = planner(problem)
    first, *_, last = tried(usual.order)
    made = planner(problem, skill("bad", f"+{first}", 0.8), skill("good", f"+{last}", 1.3))
    assert tried(made.order)[0] == last and tried(made.order)[-1] == first
    assert sorted(made.order) == sorted(usual.order)
    fixed = [r for r in usual.order if r not in MEASURED]
    assert [r for r in made.order if r not in MEASURED] == fixed
    titles = {title for _, title in made.structures()}
    assert titles == {title for _, title in usual.structures()}


def test_evidence_of_others_or_switched_off_changes_nothing(problem: SearchProblem) -> None:
    usual = planner(problem)
    last = tried(usual.order)[-1]
    elsewhere = skill("good", f"+{last}", 1.3, when="device = cuda")
    assert planner(problem, elsewhere).order == usual.order
    off = Config.model_validate({"library": {"learn": False}})
    assert planner(problem, skill("good", f"+{last}", 1.3), config=off).order == usual.order


def test_a_kernel_begins_with_a_schedule_that_pays(problem: SearchProblem) -> None:
    usual = planner(problem)
    (kernel, *_) = usual.fused(usual.default.recipes).ordered
    listed = usual.options(kernel)
    key, value = next(
        (k, v)
        for k, v in listed[-1].printed().items()
        if listed[0].printed().get(k) != v and v not in ("", None)
    )
    said = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
    do = f"kernels = {key} {said}" if key != "form" else f"kernels = {said}"
    made = planner(problem, skill("good", do, 1.3))
    assert made.first(kernel).printed()[key] == value
    assert set(made.options(kernel)) == set(listed)
    assert planner(problem, skill("unsure", do)).first(kernel) == listed[0]


def test_a_winner_credits_the_skills_whose_change_is_in_it(problem: SearchProblem) -> None:
    own, none = skill("own", "+own_matmul"), skill("none", "-own_matmul")
    made = planner(problem, own, none, skill("cuda", "+own_matmul", when="device = cuda"))
    (default, title) = made.structures()[0]
    assert "own" not in made.candidate(default, title).skills
    plan = next(plan for plan, title in made.structures() if "own_matmul" in plan.recipes)
    assert made.candidate(plan, "with own_matmul").skills == ("own",)


def test_a_search_adds_evidence_that_the_next_one_reads(
    problem: SearchProblem, tmp_path: Path
) -> None:
    own = skill("own", "+own_matmul")
    made = planner(problem, own)
    plans = [made.candidate(plan, title) for plan, title in made.structures()]
    verdicts = [ok(1.5 if "own_matmul" in c.recipes else 1.0, HERE) for c in plans]
    gains = searched(
        problem.task, "cpp", graph_facts(made), list(zip(plans, verdicts, strict=True)), [own]
    )
    (gain,) = gains
    assert gain.skill == "own" and gain.log == pytest.approx(math.log(1.5))
    path = tmp_path / "skills.db"
    with Library.open(path, create=True) as library:
        library.add(own)
        assert library.advising() == []
        for _ in range(2):  # of a task that is searched again the last counts
            add(library, HERE, "cpp", problem.task.id, gains)
        add(library, HERE, "cpp", "another", [SearchedGain("own", math.log(1.4), 0.01)])
        (seen,) = with_searched(library, library.advising(), HERE, "cpp")
        assert seen.evidence[-1]["tasks"] == 2
        assert seen.evidence[-1]["gain"] == pytest.approx(math.sqrt(1.5 * 1.4))
        (other,) = with_searched(library, [own], "another machine", "cpp")
        assert not other.evidence and library.get("own") == own
    made = planner(problem, seen)
    assert tried(made.order)[0] == "own_matmul"


def test_what_a_gpus_search_begins_with_is_measured_against_the_composers_own_plan(
    problem: SearchProblem,
) -> None:
    own = skill("own", "+own_matmul")
    made = planner(problem, own)
    more = next(r for r in made.order if r in MEASURED and r != "own_matmul")
    saving = skill("saving", f"+{more}")
    plans = [made.candidate(plan, title) for plan, title in made.structures()]
    usual, with_own = plans[0], next(c for c in plans if c.title == "with own_matmul")
    first = usual.model_copy(update={"title": f"with {more}", "recipes": (*usual.recipes, more)})
    both = with_own.model_copy(update={"recipes": (*with_own.recipes, more)})
    tried = [(first, ok(1.2, HERE)), (both, ok(1.8, HERE)), (usual, ok(1.0, HERE))]
    gains = searched(problem.task, "cpp", graph_facts(made), tried, [own, saving])
    assert [g.skill for g in gains] == ["own", "saving"]
    assert [g.log for g in gains] == pytest.approx([math.log(1.5), math.log(1.2)])


def test_a_library_that_cannot_be_written_ends_no_search(tmp_path: Path) -> None:
    path = tmp_path / "skills.db"
    with Library.open(path, create=True) as library:
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE searched")
        connection.commit()
        add(library, HERE, "cpp", "task", [SearchedGain("own", 0.1, 0.01)])
        assert with_searched(library, [], HERE, "cpp") == []
        connection.close()
