"""Four sources in order of precedence; a wrong key or value is the user's error and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dvk.config import Config, load
from dvk.errors import UsageError


def test_precedence(tmp_path: Path) -> None:
    file = tmp_path / "dvk.toml"
    file.write_text("seed = 1\n[judge]\nnum_seeds = 5\nsearch_pairs = 40\nclaim_pairs = 50\n")
    config = load(file, ["judge.search_pairs=41", "judge.claim_pairs=51"], {"judge.claim_pairs": 52, "seed": None})
    assert (config.seed, config.judge.num_seeds) == (1, 5)
    assert (config.judge.search_pairs, config.judge.claim_pairs) == (41, 52)
    assert config.limits == Config().limits


def test_one_entry_of_a_table_leaves_the_others(tmp_path: Path) -> None:
    whole = Config().rewards.weights
    assert load(settings=["rewards.weights.coverage=0"]).rewards.weights == {**whole, "coverage": 0.0}
    file = tmp_path / "dvk.toml"
    file.write_text("[rewards.weights]\ncorrectness = 1.0\n")
    assert load(file).rewards.weights == {"correctness": 1.0}
    assert load(file, ["rewards.weights.speedup=2"]).rewards.weights == {"correctness": 1.0, "speedup": 2.0}


def test_only_what_it_all_comes_to_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "dvk.toml"
    file.write_text("[remote]\njudge = 'kernelgym:http://127.0.0.1:1'\n[rollout]\nturns = -1\n")
    settings = ["remote.engine=ray", "remote.judge=null", "rollout.turns=3"]
    for given in (settings, settings[::-1]):
        config = load(file, given)
        assert (config.remote.engine, config.remote.judge, config.rollout.turns) == ("ray", None, 3)


@pytest.mark.parametrize(
    "settings",
    [
        ["judge.no_such_key=1"],
        ["nosection.key=1"],
        ["judge.num_seeds=many"],
        ["judge.num_seeds=0"],
        ["judge.num_seeds"],
        ["seed.deeper=1"],
        ["judge=3"],
        ["seed=1", "seed.deeper=1"],
    ],
)
def test_bad_settings_are_the_users_to_fix(settings: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        load(settings=settings)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["judge = [", "unknown = 1", "[judge]\nnum_seeds = 'x'", "\x00"])
def test_bad_files_are_the_users_to_fix(tmp_path: Path, text: str) -> None:
    file = tmp_path / "dvk.toml"
    file.write_text(text)
    with pytest.raises(UsageError):
        load(file)


def test_a_missing_file_is_the_users_to_fix(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load(tmp_path / "none.toml")


def test_resolved_settings_reproduce_themselves() -> None:
    config = load(settings=["seed=3", "optimize.budget_s=1.5"])
    assert Config.model_validate(config.model_dump(mode="json")) == config


def fields(section: type[BaseModel], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found += fields(inner, f"{prefix}{name}.")
        else:
            found.append((prefix + name, field))
    return found


def test_every_setting_gives_its_reason() -> None:
    assert [key for key, field in fields(Config) if len(field.description or "") <= 15] == []
