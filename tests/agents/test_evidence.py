"""Skills against a table whose truth is known: gains, growth, labels, ranking, retirement."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dvk.agents import trials
from dvk.agents.evidence import growth
from dvk.agents.evidence.gains import gain_of, is_covered, pooled, treatments
from dvk.agents.evidence.labels import label, score
from dvk.agents.evidence.standing import chosen, contradict, ranked, standing
from dvk.agents.proposing import Proposal
from dvk.agents.task_context import TaskContext
from dvk.config import Config
from dvk.records import Skill
from dvk.records.interval import Interval
from dvk.records.measured import MeasuredTask, write_table
from dvk.records.skill_block import parse_block
from dvk.stats.false_discovery import benjamini_hochberg
from tests.agents.planted_table import GAIN, LONG, MACHINE, table

TRUE = ("does = softmax, row_length > 2^14", "kernels = looped")


def skill(name: str, when: str, do: str, **fields: object) -> Skill:
    return Skill(name=name, description="d", body="b", when=when, do=do, **fields)  # type: ignore[arg-type]


def evidence(gain: float, tasks: int, machine: str = MACHINE) -> dict[str, object]:
    return {
        "source": "table",
        "machine": machine,
        "backend": "triton",
        "tasks": tasks,
        "gain": gain,
        "lo": gain * 0.99,
        "hi": gain * 1.01,
    }


@pytest.fixture(scope="module")
def rows() -> list[MeasuredTask]:
    return table()


def test_a_gain_is_looked_up_where_the_condition_holds(rows: list[MeasuredTask]) -> None:
    block = parse_block(*TRUE)
    gains = [gain for row in rows if (gain := gain_of(block, row)) is not None]
    assert len(gains) == sum(is_covered(block, row) for row in rows) == 30
    found = pooled(gains, 1.02)
    assert found is not None and found.lo is not None and found.hi is not None
    assert found.gain == pytest.approx(GAIN, rel=0.02)
    assert 1.05 < found.lo < found.gain < found.hi and found.p_value < 0.001
    own = pooled([g for row in rows if (g := gain_of(parse_block("always", "+own_matmul"), row))])
    assert own is not None and own.lo is not None and own.lo < 1.0


def test_what_a_table_does_not_hold_is_unknown(rows: list[MeasuredTask]) -> None:
    for do in ("kernels = split", "kernels = looped rblock 4096", "-fuse_rowwise"):
        assert gain_of(parse_block("always", do), rows[1]) is None
    bare = rows[1].model_copy(update={"facts": None})
    assert gain_of(parse_block("always", "kernels = looped"), bare) is None


def test_a_change_that_is_there_already_covers_nothing(rows: list[MeasuredTask]) -> None:
    for do in ("+fuse_rowwise", "kernels = persistent", "+cuda_graph"):  # the last does not apply
        assert not is_covered(parse_block("always", do), rows[1])


def test_a_plan_with_something_else_is_no_treatment(rows: list[MeasuredTask]) -> None:
    row = rows[1]
    mixed = row.plans[2].model_copy(
        update={"kind": "random", "recipes": ("fuse_rowwise", "own_matmul")}
    )
    more = row.model_copy(update={"plans": (*row.plans, mixed)})
    assert len(treatments(parse_block("always", "kernels = looped"), more)) == 1
    assert len(treatments(parse_block("always", "+own_matmul"), more)) == 1


def test_growth_finds_the_truth_and_nothing_else(rows: list[MeasuredTask]) -> None:
    results = growth.grow(rows)
    (made,) = [one.skill for one in results if one.skill is not None]
    assert made.block is not None and made.block.do.tag == "looped"
    for row in rows:
        assert row.facts is not None
        long = any(int(k["row_length"]) > LONG for k in row.facts.kernels.values())
        assert made.block.when.holds(row.facts) == long, made.when
    found = standing(made, MACHINE, "triton")
    assert found is not None and 1.05 < found.lo < found.gain < found.hi
    counted = growth.counts(results)
    assert counted["admitted"] == 1 and sum(counted.values()) == 2 * counted["proposed"]


def sped_up(row: MeasuredTask, gain: float) -> MeasuredTask:
    """The row, its plan with own products faster by a factor."""
    plans = []
    for plan in row.plans:
        timing = plan.verdict.timing
        if plan.kind == "structure" and timing is not None:
            ends = {name: gain * getattr(timing.speedup, name) for name in ("value", "lo", "hi")}
            faster = timing.model_copy(update={"speedup": Interval(**ends)})
            verdict = plan.verdict.model_copy(update={"timing": faster})
            plan = plan.model_copy(update={"verdict": verdict})
        plans.append(plan)
    return row.model_copy(update={"plans": tuple(plans)})


def test_a_recipe_is_tested_on_all_tasks_and_not_grown_where_the_library_says_it() -> None:
    rows = [sped_up(row, 1.2) for row in table(8, noise=0.02)]
    (made,) = [one.skill for one in growth.grow(rows) if one.skill is not None]
    assert made.do == "+own_matmul" and made.evidence[-1]["tasks"] == 8, "halves would have four"
    assert not [one for one in growth.grow(table(8, noise=0.02)) if one.skill is not None]
    seed = parse_block("always", "+own_matmul")
    told = growth.counts(growth.grow(rows, known=[seed]))
    refused = told["refused: the library says so"]
    assert told["admitted"] == 0 and refused == 2, "for all types, and for the one that there is"


def test_noise_grows_nothing() -> None:
    for seed in range(3):
        rows = [
            row.model_copy(update={"plans": tuple(p for p in row.plans if p.kind != "algorithm")})
            for row in table(noise=0.05, seed=seed)
        ]
        assert not [one for one in growth.grow(rows) if one.skill is not None]


def test_a_grown_skill_that_loses_is_retired_and_a_seed_is_not(rows: list[MeasuredTask]) -> None:
    harm = ("does = softmax, row_length < 2^14", "kernels = looped")
    own = skill("own", *harm, provenance={"source": "table"})
    seed = skill("seed", *harm, provenance={"source": "seed"})
    changed, retired = growth.revised([own, seed, skill("idle", "always", "-own_matmul")], rows)
    assert [event.skill for event in retired] == ["own"] and "loses: 0.9" in retired[0].data["why"]
    assert [one.name for one in changed] == ["seed"]
    again, _ = growth.revised(changed, rows)
    assert not again, "the same evidence is not added twice"


def test_labels_are_gains_and_the_right_choice_pays() -> None:
    rows = table(noise=0.003)
    offered = [skill("true", *TRUE), skill("idle", "always", "kernels = warps 8")]
    offered.append(skill("unknown", "always", "kernels = split"))
    long, short, pointwise = rows[1], rows[3], rows[0]
    found = label(offered, long, 3)
    assert found.right == ("true",) and found.gains["unknown"] is None
    assert found.gains["true"] == pytest.approx(GAIN, rel=0.05)
    assert label(offered, short, 3).right == label(offered, pointwise, 3).right == ()
    labels = [label(offered, row, 3) for row in rows]
    truth = score(labels, [found.right for found in labels])
    assert (truth.precision, truth.recall, truth.paying) == (1.0, 1.0, 30)
    none = score(labels, [()] * len(rows))
    assert (none.precision, none.recall) == (None, 0.0)
    all_ = score(labels, [("true", "idle", "unknown")] * len(rows))
    assert all_.precision is not None and all_.precision < 0.5 and all_.unknown == len(rows)


def test_evidence_ranks_and_chooses(rows: list[MeasuredTask]) -> None:
    facts = rows[1].facts
    assert facts is not None
    good = skill("good", *TRUE, evidence=(evidence(1.1, 20),))
    lucky = skill("lucky", "always", "+own_matmul", evidence=(evidence(1.2, 1),))
    elsewhere = skill(
        "elsewhere", "always", "+own_scans", evidence=(evidence(1.5, 9, "AMD MI300, torch 2"),)
    )
    against = skill("against", *TRUE[:1], "kernels = split", evidence=(evidence(1.05, 20),))
    names = [s.name for s in ranked([lucky, elsewhere, against, good], MACHINE, "triton")]
    assert names == ["good", "against", "lucky", "elsewhere"]
    assert contradict(good, against)
    picked = chosen([against, elsewhere, lucky, good], facts, MACHINE, 3)
    assert [s.name for s in picked] == ["good", "lucky"]
    assert standing(elsewhere, MACHINE) is None and standing(good, "4x " + MACHINE) is not None


def test_benjamini_hochberg_keeps_what_the_paper_keeps() -> None:
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240]
    p_values += [0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert benjamini_hochberg(p_values, 0.05) == [True] * 4 + [False] * 11
    assert benjamini_hochberg([], 0.05) == []
    assert math.isclose(sum(benjamini_hochberg([0.9] * 9, 0.05)), 0)


def test_proposals_are_tried_on_every_task_of_a_table(
    rows: list[MeasuredTask], tmp_path: Path
) -> None:
    path = tmp_path / "table.jsonl.gz"
    write_table(path, rows)
    proposed = [
        Proposal(skill("true", *TRUE), rows[1].task.id, 0),
        Proposal(skill("false", "always", "+own_matmul"), rows[1].task.id, 1),
        Proposal(skill("rare", "always", "kernels = split"), rows[1].task.id, 2),
    ]
    subjects = {row.task.id: TaskContext(row.task, None, "triton") for row in rows}
    config = Config.model_validate({"remote": {"judge": f"table:{path}"}})
    found = trials._on_table(proposed, subjects, config)
    assert [found[n].admitted for n in range(3)] == [True, False, False]
    assert found[0].lo is not None and found[0].lo > growth.BAR and found[0].worth > 0.05
    assert found[0].gain is not None and found[0].gain.num_pairs == 30
    assert standing(found[0].skill, MACHINE, "triton") is not None
    assert "lower bound" in found[1].why and "0 tasks, 6 are needed" in found[2].why
    assert not trials._on_table(proposed, subjects, Config()), "no table judges"
