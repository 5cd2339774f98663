"""`dvk convert --to prompts` and `--to harbor`: tasks for other trainers, by split."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dvk.errors import UsageError
from dvk.interop.problem_sets import ProblemSet
from dvk.interop.tables import rows
from dvk.pipelines.convert import PromptOptions, convert
from tests.environments.answers import TASK

try:
    import tomllib
except ImportError:
    import tomli as tomllib

CPU = PromptOptions(device="cpu")


def files(folder: Path) -> Path:
    for name in ("a", "heldout/b"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(TASK)
    return folder


def test_one_table_has_the_columns_of_three_trainers(tmp_path: Path) -> None:
    done = convert(files(tmp_path / "in"), tmp_path / "out.parquet", "prompts", options=CPU)
    assert (done.number, done.form) == (2, "prompts")
    train, held = rows(tmp_path / "out.parquet")
    assert (train["split"], train["data_source"]) == ("train", "dvk_train")
    assert (held["split"], held["data_source"]) == ("heldout", "dvk_heldout")
    assert held["extra_info"] == {"split": "heldout", "name": "b"} and held["env_class"] == "dvk"
    for row in (train, held):
        assert row["task"] == TASK and row["prompt"][0]["role"] == "user"
        assert row["reward_model"]["ground_truth"] == row["reward_spec"]["ground_truth"] == TASK


def test_generated_tasks_of_one_split(tmp_path: Path) -> None:
    options = PromptOptions(split="heldout", seed=5, device="cpu")
    source = Path("generated:3")
    assert convert(source, tmp_path / "out.parquet", "prompts", options=options).number == 3
    known = ProblemSet("generated:3", seed=5, device="cpu")
    assert [row["task"] for row in rows(tmp_path / "out.parquet")] == [
        one.task for one in known.all("heldout")
    ]


def test_harbor_trees_are_apart_by_split(tmp_path: Path) -> None:
    assert convert(files(tmp_path / "in"), tmp_path / "out", "harbor", options=CPU).number == 2
    for split, name in (("train", "a"), ("heldout", "b")):
        tree = tmp_path / "out" / split / name
        settings = tomllib.loads((tree / "task.toml").read_text())
        assert settings["metadata"]["split"] == split and split in settings["task"]["keywords"]
        assert settings["verifier"]["environment_mode"] == "separate"
        assert settings["artifacts"] == ["/app/answer.py"]
        assert TASK.strip() in (tree / "instruction.md").read_text()
        assert (tree / "environment" / "task.py").read_text() == TASK
        assert (tree / "tests" / "test.sh").stat().st_mode & stat.S_IXUSR
    with pytest.raises(UsageError, match="exists"):
        convert(tmp_path / "in", tmp_path / "out", "harbor", options=CPU)
    assert convert(tmp_path / "in", tmp_path / "out", "harbor", True, CPU).number == 2


def test_the_boxes_have_no_torch_and_no_judge(tmp_path: Path) -> None:
    """Nothing there measures, or knows what is measured."""
    convert(files(tmp_path / "in"), tmp_path / "out", "harbor", options=CPU)
    tree = tmp_path / "out" / "train" / "a"
    assert "torch" not in (tree / "environment" / "Dockerfile").read_text()
    script = (tree / "environment" / "score.py").read_text()
    assert "import dvk" not in script and "import torch" not in script
    assert script == (tree / "tests" / "score.py").read_text()


@pytest.mark.parametrize(
    ("source", "target", "form", "text"),
    [
        ("generated:2", "out", None, "no such file"),
        ("generated", "out.parquet", "prompts", "no such file"),
        ("generated:x", "out.parquet", "prompts", "no number"),
        ("in", "out.jsonl", "prompts", "ends in .parquet"),
        ("in", "out.parquet", "harbor", "a folder"),
        ("in/heldout", "out.parquet", "prompts", "nothing in"),
    ],
)
def test_what_cannot_be_done(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    target: str,
    form: str | None,
    text: str,
) -> None:
    files(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    options = PromptOptions(split="train", device="cpu")
    with pytest.raises(UsageError, match=text):
        convert(Path(source), Path(target), form, options=options)
