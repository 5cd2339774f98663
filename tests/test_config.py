"""Four sources in order of precedence; a wrong key or value is a user error with a clear message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dvk.config import Config, changed, former, load, names, restored, split
from dvk.config.names import Named, named
from dvk.errors import UsageError


def test_precedence(tmp_path: Path) -> None:
    file = tmp_path / "dvk.toml"
    file.write_text("seed = 1\n[judge]\nnum_seeds = 5\nsearch_pairs = 40\nclaim_pairs = 50\n")
    config = load(
        file,
        ["judge.search_pairs=41", "judge.claim_pairs=51"],
        {"judge.claim_pairs": 52, "seed": None},
    )
    assert (config.seed, config.judge.num_seeds) == (1, 5)
    assert (config.judge.search_pairs, config.judge.claim_pairs) == (41, 52)
    assert config.limits == Config().limits


def test_one_entry_of_a_table_leaves_the_others(tmp_path: Path) -> None:
    whole = Config().rewards.weights
    assert load(settings=["rewards.weights.coverage=0"]).rewards.weights == {
        **whole,
        "coverage": 0.0,
    }
    file = tmp_path / "dvk.toml"
    file.write_text("[rewards.weights]\ncorrectness = 1.0\n")
    assert load(file).rewards.weights == {"correctness": 1.0}
    assert load(file, ["rewards.weights.speedup=2"]).rewards.weights == {
        "correctness": 1.0,
        "speedup": 2.0,
    }


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
        ["optimize.budget_s=inf"],
        ["optimize.budget_s=1e400"],
        ["optimize.budget_s=nan"],
        ["seed.deeper=1"],
        ["judge=3"],
        ["seed=1", "seed.deeper=1"],
    ],
)
def test_bad_settings_are_the_users_to_fix(settings: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        load(settings=settings)
    assert caught.value.hint


def test_an_unknown_setting_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(UsageError, match="unknown setting") as caught:
        load(settings=["judge.claim_pair=40"])
    assert "`judge.claim_pairs`" in caught.value.hint
    with pytest.raises(UsageError, match="`trials.least_pairs`: unknown setting"):  # a constant now
        load(settings=["trials.least_pairs=3"])


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


NAMED = list(named(Config(), Config()))


def test_settings_that_hold_names_say_where_the_names_are_listed() -> None:
    """A text in the settings is a name of ours, or one of these, which nothing of ours lists."""
    others = {
        "backbone.endpoint_url",
        "backbone.api_key_env",
        "remote.judge",
        "remote.engine",
        "remote.token_env",
        "served.rollouts",
        "served.model",
        "served.tokenizer",
        "served.command",
        "served.arguments",
        "served.gpus",
        "diversity.suites",
        "library.pinned",
        "collect.favoured",
    }

    def texts(section: BaseModel, prefix: str = "") -> set[str]:
        found: set[str] = set()
        for key, about in type(section).model_fields.items():
            value = getattr(section, key)
            if isinstance(value, BaseModel):
                found |= texts(value, f"{prefix}{key}.")
            elif about.annotation in (str, str | None, tuple[str, ...], dict[str, float]):
                found.add(f"{prefix}{key}")
        return found

    assert texts(Config()) == others | {field.key for field in NAMED}


@pytest.mark.parametrize(
    "field",
    [
        # Sizes of nano are listed where transformers is imported.
        pytest.param(
            field, marks=[pytest.mark.slow] if field.key == "fit.size" else [], id=field.key
        )
        for field in NAMED
    ],
)
def test_an_unknown_name_is_refused_when_settings_are_loaded(field: Named, tmp_path: Path) -> None:
    table = isinstance(field.default, dict)
    known = names.load(field.table)
    for name in [*known, *field.also]:
        load(settings=[f"{field.key}.{name}=1" if table else f"{field.key}={json.dumps(name)}"])
    with pytest.raises(UsageError, match=field.key) as caught:
        load(settings=[f"{field.key}.grop=1" if table else f"{field.key}=grop"])
    assert "`grop`" in caught.value.message and all(
        name in caught.value.hint for name in [*known, *field.also]
    )
    file = tmp_path / "dvk.toml"
    section, _, last = field.key.rpartition(".")
    file.write_text(f"[{field.key}]\ngrop = 1\n" if table else f"[{section}]\n{last} = 'grop'\n")
    with pytest.raises(UsageError, match="grop"):
        load(file)
    with pytest.raises(UsageError, match="grop"):
        changed(Config(), {f"{field.key}.grop" if table else field.key: 1 if table else "grop"})


def test_a_name_may_be_user_defined(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def term(turn, settings):\n    return 1.0\n")
    assert load(settings=[f"credit.advantage={file}:term"]).credit.advantage == f"{file}:term"
    for wrong in (f"{file}:other", f"{tmp_path}/none.py:term"):
        with pytest.raises(UsageError, match="credit.advantage"):
            load(settings=[f"credit.advantage={wrong}"])


def test_a_name_with_dots_that_is_not_quoted_gets_the_hint() -> None:
    with pytest.raises(UsageError, match="rewards.weights.x") as caught:
        load(settings=["rewards.weights.x.py:term=1"])
    assert "--set 'rewards.weights.\"x.…\"=value'" in caught.value.hint
    with pytest.raises(UsageError, match="judge.num_seeds") as caught:
        load(settings=["judge.num_seeds.x=1"])
    assert "quoted" not in caught.value.hint


@pytest.mark.parametrize("quote", ["'", '"'])
def test_parts_of_a_key_may_be_quoted(tmp_path: Path, quote: str) -> None:
    file = tmp_path / "x.py"
    file.write_text("def term(turn, settings):\n    return 1.0\n")
    name = f"{file}:term"
    weights = load(settings=[f"rewards.weights.{quote}{name}{quote}=2"]).rewards.weights
    assert weights == {**Config().rewards.weights, name: 2.0}
    assert (
        load(settings=[f"{quote}judge{quote} . {quote}num_seeds{quote} = 3"]).judge.num_seeds == 3
    )
    assert (
        changed(Config(), {f"rewards.weights.{quote}{name}{quote}": 3}).rewards.weights[name] == 3.0
    )


@pytest.mark.parametrize(
    "setting",
    ["rewards.weights.'x.py:term=1", 'rewards."weights"x=1', "'judge.num_seeds'=3", "judge."],
)
def test_quotes_that_do_not_close_are_the_users_to_fix(setting: str) -> None:
    with pytest.raises(UsageError):
        load(settings=[setting])


def test_a_key_ends_at_the_first_equals_sign_outside_quotes() -> None:
    assert split("remote.judge=kernelgym:http://h/?a=b") == (
        ["remote", "judge"],
        "kernelgym:http://h/?a=b",
    )
    assert split("a.'b=c'=d=e") == (["a", "b=c"], "d=e")


@pytest.fixture
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former, "_reported", set())


@pytest.mark.usefixtures("unreported")
def test_a_removed_setting_is_reported_once_and_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.toml"
    file.write_text(
        "[search]\nopenings = 7\n[search.evolve]\npopulation = 'elite'\n[judge]\nnum_seeds = 5\n"
    )
    for _ in range(2):
        config = load(file, ["optimize.also_share=0.25", "optimize.budget_s=3"])
        assert (config.judge.num_seeds, config.optimize.budget_s) == (5, 3.0)
    said = capsys.readouterr().err.splitlines()
    assert [line.split("`")[1] for line in said] == [
        "optimize.also_share",
        "search.openings",
        "search.evolve.population",
    ]
    assert "dvk.search.writer.NUM_OPENINGS" in said[1] and "ignored" in said[1]
    with pytest.raises(UsageError, match="`search`: unknown setting"):
        load(settings=["search.opening=7"])


@pytest.mark.usefixtures("unreported")
def test_a_renamed_setting_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(settings=["library.duplicate_similarity=0.9"]).library.merge_similarity == 0.9
    both = ["library.merge_similarity=0.8", "library.alike=0.9"]
    assert load(settings=both).library.merge_similarity == 0.8
    assert "is `library.merge_similarity` now" in capsys.readouterr().err


def test_settings_of_an_earlier_run_are_read_without_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stored = Config().model_dump(mode="json") | {"search": {"openings": 4, "offspring": 4}}
    stored["credit"] |= {"void": True}
    assert restored(stored) == Config()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("key", former.CONSTANTS)
def test_a_constant_is_where_the_message_says(key: str) -> None:
    module, _, name = former.CONSTANTS[key].partition(":")
    path = Path(former.__file__).parents[1] / (module.replace(".", "/") + ".py")
    assert f"\n{name} = " in path.read_text(encoding="utf-8")


def test_no_former_setting_exists() -> None:
    keys = {key for key, _ in fields(Config)}
    assert not keys & {*former.RENAMED, *former.CONSTANTS, *former.FIXED}
    assert set(former.RENAMED.values()) <= keys
