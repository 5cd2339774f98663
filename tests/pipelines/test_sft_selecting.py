"""Examples of choosing and following skills from a table whose times are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk.composer.capture.export import trace
from dvk.composer.plan_change import graph_facts
from dvk.config import Config
from dvk.pipelines.sft import selecting
from dvk.records import Skill
from dvk.records.measured import MeasuredTask, measured, write_table
from dvk.search import SearchProblem
from dvk.search.composer import Planner
from dvk.skills import Library
from dvk.tasks import load
from tests.agents.planted_table import ok

OWN = Skill(
    name="own_products",
    description="multiply in the kernel",
    tags=("linear", "matmul"),
    body="b",
    when="has = linear",
    do="+own_matmul",
)


@pytest.mark.parametrize(("speed", "chosen"), [(1.5, ("own_products",)), (0.9, ())])
@pytest.mark.slow
def test_what_pays_is_chosen_and_followed(
    tmp_path: Path, speed: float, chosen: tuple[str, ...]
) -> None:
    task = load("data/tasks/examples/mlp_head.py", device="cpu")
    planner = Planner(SearchProblem(task, trace(task), "cpp", (), Config()))
    plans = []
    for number, (plan, title) in enumerate(planner.structures()):
        candidate = planner.candidate(plan, title)
        verdict = ok(speed if "own_matmul" in candidate.recipes else 1.0)
        plans.append(measured(candidate, verdict, "structure" if number else "default"))
    row = MeasuredTask(
        task=task, backend="cpp", dvk="0", facts=graph_facts(planner), plans=tuple(plans)
    )
    slower = row.model_copy(update={"plans": row.plans[:1]})
    write_table(tmp_path / "table.jsonl", [row, slower])
    with Library.open(tmp_path / "skills.db", create=True) as library:
        library.add(OWN)
    found = list(selecting.examples(tmp_path / "table.jsonl", tmp_path / "skills.db", []))
    assert [one.chosen for one in found if one.kind == "selection"][:1] == [chosen][: len(chosen)]
    if chosen:
        asked, followed = found[0], found[1]
        assert asked.messages[-1]["content"] == "select 1" and asked.skills == ("own_products",)
        assert "own_products | has = linear | +own_matmul" in asked.messages[0]["content"]
        assert followed.kind == "policy_with_skills" and followed.speedup == speed
        assert followed.messages[-1]["content"] == "plan +own_matmul"
        assert "do +own_matmul" in followed.messages[0]["content"]
