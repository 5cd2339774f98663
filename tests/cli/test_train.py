"""The command line of `dvk train`: what it refuses before anything is loaded, and what reaches the pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dvk.pipelines.train as pipeline
from dvk.cli import app, main
from dvk.config import Config
from dvk.pipelines.train import TrainRequest
from dvk.pipelines.train import sweep as sweeping


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ablate", "no-luck"], "unknown ablation: `no-luck`"),
        (["--sweep", "nowhere.toml"], "cannot read `nowhere.toml`"),
        (["--device", "tpu"], "unknown device"),
        (["--from", "scripted", "--out", "run"], "`scripted` cannot be trained"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["dvk", "train", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2 and said in error and "hint: " in error


def test_ablations_become_settings_and_win_over_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[TrainRequest, Config]] = []

    def train(request: TrainRequest, config: Config) -> dict[str, Any]:
        asked.append((request, config))
        return {"run": "r", "steps": 1, "checkpoint": "c", "skills": 0}

    monkeypatch.setattr(pipeline, "train", train)
    words = [
        "train",
        "--json",
        "--steps",
        "1",
        "--validation",
        "held",
        "--set",
        "credit.advantage=reinforce",
    ]
    words += ["--ablate", "grpo", "--ablate", "no-mrs"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and json.loads(done.stdout)["steps"] == 1
    ((request, config),) = asked
    assert (
        config.credit.advantage == "grpo"
        and not config.credit.mismatch_rejection
        and config.credit.step_scale
    ), "the recipe of nano, and what changes it"
    assert request.steps == 1 and request.validation == Path("held")


def test_a_sweep_prints_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"run": "r", "table": "| a |\n", "rows": []}
    monkeypatch.setattr(sweeping, "sweep", lambda file, request, config: told)
    assert CliRunner().invoke(app, ["train", "--sweep", "s.toml"]).stdout.startswith("| a |")
    assert (
        json.loads(CliRunner().invoke(app, ["train", "--sweep", "s.toml", "--json"]).stdout) == told
    )
