"""Tasks as other trainers take them, by split and position."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from dvk.errors import UsageError
from dvk.interop.problem_sets import ENDLESS, ProblemSet
from dvk.resources import resource
from tests.environments.answers import TASK


def files(folder: Path) -> Path:
    for name in ("train/relu", "train/deep/relu", "heldout/relu", "_hidden"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(TASK)
    (folder / "two.py").write_text(TASK.replace("Model(", "One(") + TASK.replace("Model(", "Two("))
    (folder / "none.py").write_text(TASK.replace("get_inputs", "inputs"))
    return folder


def test_files_are_split_by_their_folder(tmp_path: Path) -> None:
    known = ProblemSet(files(tmp_path), backend="cpp", device="cpu")
    assert [(one.name, one.split) for one in known.all("any")] == [
        ("relu", "heldout"),
        ("relu_2", "train"),
        ("relu_3", "train"),
    ]
    assert [known.count(part) for part in ("train", "heldout", "any")] == [2, 1, 3]
    assert len(known.left_out) == 2 and "get_inputs" in " ".join(known.left_out)
    one = known.at("heldout", 0)
    assert one.task == TASK and TASK.strip() in one.prompt and "C++" in one.prompt
    assert ProblemSet(tmp_path / "train" / "relu.py", device="cpu").count("train") == 1


def test_shipped_held_out_sets_are_held_out() -> None:
    known = ProblemSet(resource("data", "tasks"), device="cpu")
    frozen = {path.stem for path in resource("data", "tasks", "heldout").glob("*.py")}
    assert len(frozen) == 200 and not frozen & {one.name for one in known.all("train")}


def test_generated_tasks_never_end_and_splits_share_no_sequence() -> None:
    known = ProblemSet("generated", seed=3, device="cpu")
    assert known.count("train") == ENDLESS
    drawn = {part: list(islice(known.all(part), 12)) for part in ("train", "heldout")}
    assert {one.split for one in drawn["train"]} == {"train"}
    assert {one.split for one in drawn["heldout"]} == {"heldout"}
    assert known.at("train", 7) == drawn["train"][7] and known.at("train", 10**9).task
    assert len({one.task for part in drawn.values() for one in part}) == 24
    other = ProblemSet("generated:2", seed=4, device="cpu")
    assert [one.task for one in other.all("train")] != [one.task for one in drawn["train"][:2]]


@pytest.mark.parametrize(
    ("source", "text"),
    [("generated:0", "no number"), ("generated:x", "no number"), ("gone", "no task files")],
)
def test_no_such_source(source: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        ProblemSet(source, device="cpu")


def test_no_such_place(tmp_path: Path) -> None:
    known = ProblemSet(files(tmp_path), device="cpu")
    with pytest.raises(IndexError):
        known.at("train", 2)
    with pytest.raises(UsageError, match="unknown split"):
        known.count("test")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="do not run on"):
        ProblemSet(tmp_path, backend="cuda", device="cpu")
