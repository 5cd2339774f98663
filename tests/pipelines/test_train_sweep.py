"""Ablations are settings by name; a sweep compares variants on the same tasks and resumes after a kill."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dvk.cli import app
from dvk.config import Config, changed
from dvk.errors import DvkError, RunFolderError, UsageError
from dvk.pipelines.train import TrainRequest, comparing, sweep, validations
from dvk.pipelines.train.ablations import ABLATIONS, settings_of
from dvk.pipelines.train.comparing import PolicyOutcomes
from dvk.pipelines.train.state import thin_out
from dvk.stats.fast_p import TaskOutcome
from tests.pipelines import world

FILE = """
seeds = [0, 1]
[variants.full]
[variants.plain]
ablate = ["no-skills", "grpo"]
seeds = [7]
[variants.slow]
set.train.rate = 5e-7
set.rewards.weights = { correctness = 1.0 }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


# ---------------------------------------------------------------- ablations


def test_every_ablation_changes_settings_that_exist_and_is_in_the_help() -> None:
    said = CliRunner().invoke(app, ["train", "--help"]).output
    for name, ablation in ABLATIONS.items():
        after = changed(Config(), settings_of([name])).model_dump()
        assert after != Config().model_dump() and f"{name} " in said and ablation.what in said, name


def test_unknown_ablations_name_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no-luck") as error:
        settings_of(["grpo", "no-luck"])
    assert "frozen-library" in error.value.hint


def test_settings_change_and_unknown_ones_do_not() -> None:
    assert changed(Config(), {"train.rate": 0.5, "seed": 4}) == Config.model_validate(
        {"train": {"rate": 0.5}, "seed": 4}
    )
    with pytest.raises(UsageError, match="train.rat"):
        changed(Config(), {"train.rat": 1})


# ---------------------------------------------------------------- the file


def test_variants_are_configurations(tmp_path: Path) -> None:
    full, plain, slow = sweep.variants(written(tmp_path, FILE), Config())
    assert list(full.configs) == [0, 1] and full.configs[1] == Config(seed=1)
    assert (
        list(plain.configs) == [7]
        and plain.configs[7].agents.num_candidates == 0
        and plain.configs[7].credit.advantage == "grpo"
    )
    assert slow.configs[0].train.rate == 5e-7 and slow.configs[0].rewards.weights == {
        "correctness": 1.0
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seeds = [0", "cannot read"),
        ("seeds = [0]", "names no variants"),
        ("[variants.a]\nablat = []", "ablat"),
        ("x = 1\n[variants.a]", "`x`"),
        ("[variants.a]\nablate = ['none']", "unknown ablation"),
        ("[variants.a]\nset.train.x = 1", "train.x"),
        ("[variants.a]\nset = 3", "bad settings"),
        ("[variants.a]\nseeds = []", "bad seeds"),
        ("[variants.'../a']", "not a variant's name"),
        ("[variants.a]\nset.train.validate_every = 0", "compares validations"),
    ],
)
def test_a_malformed_file_says_what_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        sweep.variants(written(tmp_path, text), Config())


# ---------------------------------------------------------------- the comparison


def outcomes(*speeds: float | None) -> list[TaskOutcome]:
    return [TaskOutcome(f"t{n}", speed is not None, speed, speed) for n, speed in enumerate(speeds)]


def test_differences_are_paired_by_task() -> None:
    """A task's luck is common to both arms: every task gains the same, so the interval of the gain has no width."""
    speeds = [0.6, 1.1, 1.4, 2.0, 3.1]
    first, second = (
        PolicyOutcomes("a", outcomes(*speeds)),
        PolicyOutcomes("b", outcomes(*(max(1.0, s) * 1.25 for s in speeds))),
    )
    rows = comparing.compared([first, second, PolicyOutcomes("c", [])])
    gain = rows[1]["differences"]["speedup"]
    assert (
        all(gain[end] == pytest.approx(1.25) for end in ("value", "lo", "hi"))
        and gain["num_tasks"] == 5
    )
    assert rows[0]["scores"]["fast_1.2"]["value"] == pytest.approx(0.6)
    assert (
        rows[0]["scores"]["speedup"]["lo"]
        < rows[0]["scores"]["speedup"]["value"]
        < rows[0]["scores"]["speedup"]["hi"]
    )
    assert (
        rows[2]["scores"]["fast_1"]["value"] is None
        and rows[2]["differences"]["fast_1"]["value"] is None
    )
    assert "differences" not in rows[0] and json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_the_table_shows_ends_and_signs() -> None:
    rows = comparing.compared(
        [
            PolicyOutcomes("a", outcomes(None, 1.1, 1.3)),
            PolicyOutcomes("b|c", outcomes(1.6, 1.1, 1.3), "stopped: x"),
        ]
    )
    lines = comparing.markdown(rows).splitlines()
    assert (
        lines[0].startswith("|  | tasks | fast_1 |")
        and len(lines) == 5
        and len({line.count(" | ") for line in lines}) == 1
    )
    assert (
        "66.7 % [0.0, 100.0]" in lines[2]
        and "b\\|c (stopped: x)" in lines[3]
        and "+33.3 pp [-29.1, +100.0]" in lines[4]
    )
    assert (
        comparing.shown("speedup", {"value": math.exp(0.1), "lo": 1.0, "hi": 1.2})
        == "1.105× [1.000, 1.200]"
    )
    lines = comparing.markdown(
        comparing.compared([PolicyOutcomes("a", outcomes(1.1)), PolicyOutcomes("b", outcomes(1.3))])
    ).splitlines()
    assert (
        "| 100.0 % |" in lines[2] and "| +100.0 pp |" in lines[4] and "[" not in "".join(lines)
    ), "of one task"


def test_validations_are_read_back(tmp_path: Path) -> None:
    assert validations.latest(tmp_path) == (-1, []) and validations.initial(tmp_path) == []
    (tmp_path / "validation").mkdir()
    row = {"task": "i", "name": "n", "status": "ok", "correct": True, "speedup": 1.5, "lo": 1.4}
    for step, speed in ((0, 1.0), (9, 1.2), (10, 1.5)):
        (tmp_path / "validation" / f"step_{step:06d}.jsonl").write_text(
            json.dumps({**row, "speedup": speed}) + "\n"
        )
    assert (
        validations.latest(tmp_path) == (10, [TaskOutcome("i", True, 1.5, 1.4)])
        and validations.initial(tmp_path)[0].speedup == 1.0
    )


def test_validation_prefers_a_step_only_beyond_the_error_of_its_gain(tmp_path: Path) -> None:
    assert validations.preferred(tmp_path) is None
    (tmp_path / "validation").mkdir()

    def validated(step: int, speeds: list[float | None]) -> None:
        row = {"name": "n", "status": "ok", "lo": None}
        rows = [
            {**row, "task": str(n), "correct": s is not None, "speedup": s}
            for n, s in enumerate(speeds)
        ]
        text = "".join(json.dumps(one) + "\n" for one in rows)
        (tmp_path / "validation" / f"step_{step:06d}.jsonl").write_text(text)

    validated(0, [1.0, 2.0, 3.0])
    assert validations.preferred(tmp_path) is None, "nothing to compare"
    validated(10, [1.9, 2.1, 2.0])
    assert validations.preferred(tmp_path) == 0, "one task decides, and another loses"
    validated(20, [1.2, 2.2, 3.3])
    validated(30, [1.1, 2.1, 3.2])
    assert validations.preferred(tmp_path) == 20
    validated(40, [1.5, 2.5, None])
    assert validations.preferred(tmp_path) == 20, "a wrong answer is as fast as eager"


def test_the_preferred_checkpoint_stays(tmp_path: Path) -> None:
    for step in range(1, 8):
        (tmp_path / f"step_{step:06d}").mkdir()
    thin_out(tmp_path / "step_000007", 5, 3)
    assert sorted(int(path.name[5:]) for path in tmp_path.iterdir()) == [3, 5, 7]


# ---------------------------------------------------------------- running


@pytest.mark.slow
def test_a_sweep_trains_each_once_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dvk.pipelines.train as pipeline

    monkeypatch.setattr(pipeline, "JudgeQueue", world.Recorded)
    trained: list[str] = []
    real = sweep.train

    def seen(request: TrainRequest, config: Config) -> dict[str, Any]:
        assert request.out is not None
        trained.append(request.out.parent.name)
        if trained == ["full", "frozen"]:
            raise DvkError("pulled the plug", "go on")
        return real(request, config)

    monkeypatch.setattr(sweep, "train", seen)
    file = written(tmp_path, "[variants.full]\n[variants.frozen]\nablate = 'frozen-library'\n")
    asked = world.request(tmp_path, tmp_path / "out", 1)
    first = sweep.sweep(file, asked, world.CONFIG)
    assert "stopped: pulled the plug" in first["table"] and first["rows"][0]["num_tasks"] == 2
    began = (tmp_path / "out" / "full" / "seed_3" / "run.json").read_text()
    second = sweep.sweep(file, asked, world.CONFIG)
    assert (
        trained == ["full", "frozen"] * 2
        and (tmp_path / "out" / "full" / "seed_3" / "run.json").read_text() == began
    )
    full, frozen, before = second["rows"]
    assert "stopped" not in second["table"] and [
        r["num_tasks"] for r in (full, frozen, before)
    ] == [2, 2, 2]
    assert frozen["differences"]["fast_1"]["num_tasks"] == 2 and before["name"] == "before training"
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["rows"] == second["rows"]
    assert second["table"] in (tmp_path / "out" / "comparison.md").read_text()
    with pytest.raises(RunFolderError, match="other settings"):
        sweep.sweep(file, asked, changed(world.CONFIG, {"train.rate": 0.5}))
    with pytest.raises(RunFolderError, match="--steps"):
        sweep.sweep(file, world.request(tmp_path, tmp_path / "out", 2), world.CONFIG)


def test_a_sweep_of_several_processes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="2 were started"):
        sweep.sweep(written(tmp_path, FILE), TrainRequest(out=tmp_path / "out"), Config())
    assert not (tmp_path / "out").exists()
