"""From a table to a model that chooses plans: what is learned, what is only looked up, and the figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dvk.config import Config, changed
from dvk.errors import UsageError
from dvk.pipelines.sft.choice_course import CHOICES, Course, best_pass, folds, known_plans
from dvk.pipelines.sft.choice_figures import Chosen, figures
from dvk.pipelines.sft.choose import ChooseRequest, choose, of_tables, table_lines
from dvk.records.measured import MeasuredTask, read_table, write_table
from tests.pipelines.made_up_tables import TEXTS, task

CONFIG = changed(
    Config(),
    {
        "fit.size": "tiny",
        "learning.pack_tokens": 256,
        "choose.rate": 1e-2,
        "choose.reward_rate": 3e-3,
        "choose.start_epochs": 3,
        "choose.fit_epochs": 30,
        "choose.folds": 0,
        "choose.reward_epochs": 12,
        "choose.batch_tokens": 512,
    },
)


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    train, held = tmp_path / "train.jsonl.gz", tmp_path / "held.jsonl.gz"
    write_table(train, [task(n, "generated") for n in range(12)])
    write_table(held, [task(n, "heldout") for n in range(20, 26)])
    return train, held


@pytest.mark.slow
def test_a_model_learns_to_choose_the_plans_that_pay(
    tables: tuple[Path, Path], tmp_path: Path
) -> None:
    request = ChooseRequest(
        tables=tables[:1], heldout=tables[1:], start="nano-from-zero", out=tmp_path / "run"
    )
    told = choose(request, CONFIG)
    assert (told["tasks"], told["heldout"]) == (12, 6)
    start, fit, reward = (told[stage]["heldout"] for stage in ("start", "fit", "reward"))
    assert start["right"] == 1.0 and start["tasks"] == 6
    assert fit["closed"] == pytest.approx(0.37, abs=0.01), "own products everywhere: the average"
    assert reward["closed"] > 0.9 and reward["fast"]["1.2"] > 0.9
    assert reward["oracle"] == pytest.approx(1.5) and reward["default"] == pytest.approx(1.0)
    lines = [json.loads(line) for line in (tmp_path / "run" / CHOICES).read_text().splitlines()]
    assert {(one["stage"], one["split"]) for one in lines if one["task"] == "heldout21"} == {
        (stage, "heldout") for stage in ("start", "fit", "reward")
    }
    for stage in ("start", "fit", "reward"):
        card = json.loads((tmp_path / "run" / "checkpoints" / stage / "dvk.json").read_text())
        assert card["dialect"] == "plan"
    manifest = tmp_path / "run" / "run.json"
    manifest.write_text(manifest.read_text().replace('"done"', '"running"'))
    again = choose(replace(request, resume=True), CONFIG)
    assert again["fit"]["heldout"] == told["fit"]["heldout"], "finished stages are not repeated"


@pytest.mark.parametrize("gained", [(0.0, 0.2, 0.1), (0.2, 0.1, 0.0)])
def test_cross_validation_chooses_the_number_of_passes(
    tables: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gained: tuple[float, ...],
) -> None:
    """Before and after each pass of the fit for two folds; the stage after it has no pass."""
    asked: list[frozenset[str]] = []

    def scored(self: Course, tasks: Sequence[MeasuredTask]) -> list[float]:
        asked.append(frozenset(task.task.name for task in tasks))
        return [gained[(len(asked) - 1) % 3]] * len(tasks)

    monkeypatch.setattr(Course, "_gained", scored)
    request = ChooseRequest(tables=tables[:1], start="nano-from-zero", out=tmp_path / "run")
    passes = {"choose.start_epochs": 0, "choose.fit_epochs": 2, "choose.reward_epochs": 0}
    told = choose(request, changed(CONFIG, {**passes, "choose.folds": 2}))
    best = max(range(3), key=lambda n: gained[n])
    assert (told["fit"]["passes"], told["reward"]["passes"]) == (best, 0)
    assert asked[:3] == asked[:1] * 3 and asked[3:] == asked[3:4] * 3
    assert len(asked) == 6 and not asked[0] & asked[3] and len(asked[0] | asked[3]) == 12
    start, fit, reward = (
        load_file(tmp_path / "run" / "checkpoints" / stage / "model.safetensors")
        for stage in ("start", "fit", "reward")
    )
    assert all(torch.equal(fit[name], reward[name]) for name in fit)
    assert best == 0 or any(not torch.equal(start[name], fit[name]) for name in fit)
    assert best > 0 or all(torch.equal(start[name], fit[name]) for name in fit)
    trained = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    parts = [row["fold"] for row in trained if "fold" in row]
    assert parts == [0, 0, 1, 1, *[None] * best]


def test_a_tasks_back_ends_are_in_one_fold() -> None:
    """Their gains are related: one would be learned from the other."""
    rows = [task(number, "learned") for number in range(5)]
    both = [*rows, *(row.model_copy(update={"backend": "cuda"}) for row in rows)]
    parts = folds(both, 3)
    assert len(parts) == 3 and sum(map(len, parts)) == 10
    names = [{row.task.id for row in part} for part in parts]
    assert not names[0] & names[1] and not names[0] & names[2] and not names[1] & names[2]
    assert folds(rows[:1], 5) == [] == folds(rows, 1)


def test_a_gain_within_two_standard_errors_is_chance() -> None:
    assert best_pass([[0.0, 0.0, 0.0, 0.0], [0.5, -0.4, 0.4, -0.4], [0.0, -0.1, 0.0, 0.0]]) == 0
    assert best_pass([[0.0, 0.0, 0.0, 0.0], [0.5, -0.1, 0.4, 0.0]]) == 0
    assert best_pass([[0.0, 0.0, 0.0, 0.0], [0.5, -0.1, 0.4, 0.0], [0.5, 0.1, 0.4, 0.0]]) == 2


def test_held_out_tasks_are_never_learned(tables: tuple[Path, Path], tmp_path: Path) -> None:
    rows, held = of_tables(ChooseRequest(tables=tables, heldout=tables[1:]))
    assert {row.groups["suite"] for row in rows} == {"generated"} and len(held) == 6
    with pytest.raises(UsageError, match="no task to learn from: all 6 tasks are held out"):
        of_tables(ChooseRequest(tables=tables[1:]))
    with pytest.raises(UsageError, match="no task to learn from: no task of cuda has"):
        of_tables(ChooseRequest(tables=tables, backend="cuda"))


def test_figures_count_wrong_and_unknown_plans() -> None:
    one, two, three = (task(number, "heldout") for number in (1, 2, 3))
    plans = {text: known for known in known_plans(one) for text in [known.text]}
    picked = [(one, Chosen("a", plans[TEXTS[2]])), (two, Chosen("b", two.plans[3]))]
    found = figures([*picked, (three, Chosen("strange", None))])
    assert (found["tasks"], found["unknown"], found["right"]) == (3, 1, 0.5)
    assert found["geomean"] == pytest.approx(math.sqrt(1.5)), "a wrong plan counts as eager"
    assert found["closed"] == pytest.approx(0.5) and found["fast"]["1.2"] == 0.5
    lo, hi = found["closed_interval"]
    assert lo == pytest.approx(0.0) and hi == pytest.approx(1.0)


def test_figures_without_a_known_plan_are_shown_as_unknown() -> None:
    one = task(1, "heldout")
    known, strange = (figures([(one, Chosen("", plan))]) for plan in (one.plans[0], None))
    told = {"start": {"heldout": known, "unaided": strange}}
    _, _, first, last = table_lines(told)
    assert last == "| start, unaided | 1 | - | - | - | - | - | - | - | 1 |"
    assert first.count("|") == last.count("|")
    json.dumps(told, allow_nan=False)


def test_the_best_fixed_rule_is_one_line_that_many_tasks_know() -> None:
    rows = [task(number, "heldout") for number in (0, 2, 4, 5)]
    found = figures([(row, Chosen("plan", row.plans[0])) for row in rows])
    assert found["rule"] == "plan +own_matmul"
    assert found["fixed"] == pytest.approx((1.5**3 * 0.9) ** 0.25) and found["closed"] == 0.0


def test_the_shipped_table_is_worded_and_for_evaluation() -> None:
    rows = list(read_table(Path("data/measured/heldout-h200.jsonl.gz")))
    assert len(rows) == 74 and sum(len(row.plans) for row in rows) == 1771
    assert all(
        row.facts and row.question and row.default and row.groups["suite"] == "heldout"
        for row in rows
    )
    assert all(plan.text.startswith("plan") for row in rows for plan in row.plans)
