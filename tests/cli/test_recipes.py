"""`--recipe NAME`: settings of a command by one name."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dvk import config
from dvk.cli import app, main, recipes
from dvk.cli.train import default_recipe
from dvk.config import former
from dvk.errors import UsageError


@pytest.mark.parametrize("command", ["train", "sft"])
def test_recipes_load_and_the_help_lists_them(command: str) -> None:
    known = recipes.names(command)
    assert "davinci" in known and all(what for what in known.values())
    for name in known:
        settings = recipes.read(command, name)
        config.load(recipe=settings)
        assert former.update(settings, quiet=True) == settings, "a setting of an earlier version"
    said = " ".join(CliRunner().invoke(app, [command, "--help"]).output.split())
    assert all(name in said for name in known)


@pytest.mark.parametrize("command", ["train", "sft"])
def test_an_unknown_recipe_names_the_known_ones(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [command, "--recipe", "davinchi", "--out", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", ["dvk", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2 and not (tmp_path / "run").exists()
    assert "`davinchi`" in error and "choose one of davinci" in error


def test_files_settings_and_flags_change_a_recipe(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[train]\ntasks_per_step = 3\n")
    merged = config.load(
        file, ["objective.mini_batches=7"], {"credit.gamma": 0.5}, recipes.read("train", "small")
    )
    assert (merged.train.tasks_per_step, merged.objective.mini_batches) == (3, 7)
    assert merged.credit.gamma == 0.5 and merged.rewards.weights == {"log_speedup": 1.0}
    assert merged.rollout.rollouts == 8, "what nothing else says is the recipe's"


def test_davinci_is_the_paper_s() -> None:
    """Its own figures: 16 tasks of 4 schemes × 4 rollouts × 3 turns at a rate of 1e-6, no KL, raw speedups."""
    paper = config.load(recipe=recipes.read("train", "davinci"))
    rollout = paper.rollout
    assert (paper.train.tasks_per_step, rollout.schemes, rollout.rollouts, rollout.turns) == (
        16,
        3,
        4,
        3,
    )
    assert (
        paper.train.rate == 1e-6 and paper.objective.kl == 0 and paper.objective.aggregate == "sum"
    )
    assert paper.rewards.weights == {"correctness": 0.5, "speedup": 0.5, "coverage": 0.5}
    assert not paper.credit.shared_scale and not paper.credit.shrink_noise


def test_small_models_have_a_recipe_by_default(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "dvk.json").write_text("{}")
    found = [default_recipe(s) for s in ("nano", "nano:x", f"hf:{own}", "hf:Qwen/Qwen3-8B")]
    assert found == ["small", "small", "small", None]


def test_an_unknown_recipe_of_no_command_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown recipe"):
        recipes.read("train", "nano")
