"""A run folder survives kills, refuses to be shared, and can be resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dvk.config import Config, load
from dvk.errors import RunFolderError, UsageError
from dvk.records import TensorSpec
from dvk.runs import RunFolder

RECORD = TensorSpec(name="x", dtype="float32", shape=(2,), strides=(1,))


def start(path: Path | None, **changes: Any) -> RunFolder:
    given: dict[str, Any] = dict(
        command="optimize", name="relu", argv=["dvk", "a b"], config=Config(), resume=False
    )
    return RunFolder.open(path, **(given | changes))


def manifest(run: RunFolder) -> dict[str, Any]:
    return dict(json.loads((run.path / "run.json").read_text()))


def test_a_new_run_explains_itself(tmp_path: Path) -> None:
    run = start(tmp_path / "deep" / "run", config=load(settings=["seed=7"]))
    facts = manifest(run)
    assert facts["status"] == "running" and facts["argv"] == "dvk 'a b'"
    assert facts["config"]["seed"] == 7 and facts["versions"]["torch"] and facts["machine"]
    run.finish("done")
    assert manifest(run)["status"] == "done" and manifest(run)["ended"] and run.finished


def test_the_default_place_is_new_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [start(None, name="../odd name:Net").path for _ in range(3)]
    assert len(set(paths)) == 3 and {path.parent for path in paths} == {Path("runs")}


def test_a_used_folder_is_refused_without_resume(tmp_path: Path) -> None:
    start(tmp_path / "run").close()
    with pytest.raises(RunFolderError) as caught:
        start(tmp_path / "run")
    assert "--resume" in caught.value.hint


@dataclass(frozen=True)
class Asked:
    suite: Path = Path("suite")
    turns: int = 1
    workers: int = 2


def test_a_finished_run_answers_what_it_was_asked_and_nothing_else(tmp_path: Path) -> None:
    run = start(tmp_path / "run")
    assert not run.answered(Asked(turns=3), Config())
    run.close()
    run = start(tmp_path / "run", resume=True)
    assert not run.answered(Asked(), Config()), "one that goes on may be asked otherwise"
    run.finish("done")
    run = start(tmp_path / "run", resume=True)
    assert run.answered(Asked(Path("suite").absolute(), workers=1), Config())
    for asked, config, other in (
        (Asked(turns=3), Config(), "turns"),
        (Asked(), load(settings=["judge.search_s=9"]), "judge.search_s"),
    ):
        with pytest.raises(RunFolderError, match=f"another {other}\n") as caught:
            run.answered(asked, config)
        assert "--out" in caught.value.hint


def test_resume_starts_continues_and_leaves_a_finished_run_alone(tmp_path: Path) -> None:
    run = start(tmp_path / "run", resume=True)
    run.append("turns.jsonl", {"n": 1})
    run.close()
    run = start(tmp_path / "run", resume=True, argv=["dvk", "again"])
    assert not run.finished and run.read("turns.jsonl") == [{"n": 1}]
    assert [entry["argv"] for entry in manifest(run)["resumed"]] == ["dvk again"]
    run.finish("done")
    before = (run.path / "run.json").read_bytes()
    assert start(tmp_path / "run", resume=True).finished
    assert (run.path / "run.json").read_bytes() == before


def test_a_failed_run_can_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), start(tmp_path / "run") as run:
        raise ZeroDivisionError
    assert manifest(run)["status"] == "failed"
    run = start(tmp_path / "run", resume=True)
    assert not run.finished and manifest(run)["status"] == "running"


def test_an_interrupted_run_says_so_and_can_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), start(tmp_path / "run") as run:
        raise KeyboardInterrupt
    assert manifest(run)["status"] == "interrupted" and manifest(run)["ended"]
    run = start(tmp_path / "run", resume=True)
    assert not run.finished and manifest(run)["status"] == "running"


def test_a_run_that_is_refused_before_it_recorded_anything_leaves_nothing(tmp_path: Path) -> None:
    refusal = UsageError("no such model", "name another")
    for resume in (False, True):
        with pytest.raises(UsageError), start(tmp_path / "run", resume=resume):
            raise refusal
        assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError), start(tmp_path / "run") as run:
        run.append("turns.jsonl", {"n": 1})
        raise refusal
    assert manifest(run)["status"] == "failed"
    start(tmp_path / "before").close()
    with pytest.raises(UsageError), start(tmp_path / "before", resume=True) as run:
        raise refusal
    assert manifest(run)["status"] == "failed", "another process began it"


@pytest.mark.parametrize("given", ["empty", ".", "link"])
def test_such_a_run_leaves_a_folder_that_was_there_as_it_was(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    monkeypatch.chdir(tmp_path / "empty" if given == "." else tmp_path)
    with pytest.raises(UsageError), start(Path(given)):
        raise UsageError("no such model", "name another")
    assert (
        (tmp_path / "empty").is_dir()
        and not list((tmp_path / "empty").iterdir())
        and (tmp_path / "link").is_symlink()
    )


def test_resume_without_a_path_takes_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = start(None, name="relu-b")
    mine = start(None)
    for run in (other, mine):
        run.close()
    assert start(None, resume=True).path == mine.path
    assert start(None, name="unseen", resume=True).path not in (other.path, mine.path)


@pytest.mark.parametrize("changes", [{"name": "gelu"}, {"command": "verify"}])
def test_another_run_is_never_written_into(tmp_path: Path, changes: dict[str, str]) -> None:
    start(tmp_path / "run").close()
    with pytest.raises(RunFolderError, match="another run"):
        start(tmp_path / "run", resume=True, **changes)


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    for resume in (False, True):
        with pytest.raises(RunFolderError):
            start(tmp_path, resume=resume)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_what_cannot_be_a_folder_is_the_users_to_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunFolderError):
            start(path)


def test_a_damaged_manifest_is_reported(tmp_path: Path) -> None:
    start(tmp_path / "run").close()
    (tmp_path / "run" / "run.json").write_text("[1]")
    with pytest.raises(RunFolderError, match="damaged"):
        start(tmp_path / "run", resume=True)


def test_records_of_both_kinds_come_back(tmp_path: Path) -> None:
    run = start(tmp_path / "run")
    run.append("episodes/a.jsonl", RECORD)
    run.append(
        "episodes/a.jsonl",
        {"text": "line\nbreak \u2028 ünï", "loss": float("nan"), "path": Path("a/b")},
    )
    first, second = run.read("episodes/a.jsonl")
    assert TensorSpec.model_validate(first) == RECORD
    assert second == {"text": "line\nbreak \u2028 ünï", "loss": None, "path": "a/b"}
    assert run.read("none.jsonl") == []


@pytest.mark.parametrize("torn", [b'{"n": 2', b'{"n": 2}', b"x" * 200_000])
def test_a_torn_last_line_is_dropped_and_not_continued(tmp_path: Path, torn: bytes) -> None:
    run = start(tmp_path / "run")
    run.append("turns.jsonl", {"n": 1})
    with (run.path / "turns.jsonl").open("ab") as file:
        file.write(torn)
    assert run.read("turns.jsonl") == [{"n": 1}]
    run.append("turns.jsonl", {"n": 3})
    assert run.read("turns.jsonl") == [{"n": 1}, {"n": 3}]


def test_a_file_of_one_torn_line_is_started_over(tmp_path: Path) -> None:
    run = start(tmp_path / "run")
    (run.path / "turns.jsonl").write_bytes(b"x" * 70_000)
    run.append("turns.jsonl", {"n": 1})
    assert run.read("turns.jsonl") == [{"n": 1}]


def test_a_damaged_record_is_reported(tmp_path: Path) -> None:
    run = start(tmp_path / "run")
    (run.path / "turns.jsonl").write_text('{"n": 1}\nnot json\n{"n": 3}\n')
    with pytest.raises(RunFolderError, match="line 2"):
        run.read("turns.jsonl")


def test_text_is_replaced_whole(tmp_path: Path) -> None:
    run = start(tmp_path / "run")
    assert run.write_text("best.py", "one\n").read_text() == "one\n"
    run.write_text("best.py", "two\n")
    assert (run.path / "best.py").read_text() == "two\n"
    assert not list(run.path.glob("*.tmp"))


@pytest.mark.parametrize(
    "name", ["../outside.jsonl", "/tmp/outside.jsonl", "a/../../outside.jsonl"]
)
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    run = start(tmp_path / "run")
    with pytest.raises(ValueError, match="outside"):
        run.append(name, {})


WRITER = """
import sys
from pathlib import Path
from dvk.config import Config
from dvk.runs import RunFolder
run = RunFolder.open(Path(sys.argv[1]), command="optimize", name="relu", argv=[], config=Config(), resume=True)
number = 0
while True:
    run.append("turns.jsonl", {"n": number, "text": "x" * 5000})
    print(number, flush=True)
    number += 1
"""


def test_kill_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "run"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    with pytest.raises(RunFolderError, match="another process"):
        start(path, resume=True)
    time.sleep(0.2)
    os.kill(writer.pid, signal.SIGKILL)
    said = [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    run = start(path, resume=True)
    numbers = [record["n"] for record in run.read("turns.jsonl")]
    assert numbers == list(range(len(numbers))) and len(numbers) > said[-1]
    run.append("turns.jsonl", {"n": -1})
    assert run.read("turns.jsonl")[-1] == {"n": -1}


FULL = """
import resource, sys
from pathlib import Path
from dvk.config import Config
from dvk.errors import RunFolderError
from dvk.runs import RunFolder

def full(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

run = RunFolder.open(Path(sys.argv[1]), command="optimize", name="relu", argv=[], config=Config(), resume=False)
run.append("turns.jsonl", {"number": 1})
run.write_text("best.py", "first")
full(20)
for write in (lambda: run.append("turns.jsonl", {"number": 2, "text": "x" * 50}), lambda: run.write_text("best.py", "y" * 50),
              lambda: run.finish("done")):
    try:
        write()
    except RunFolderError as error:
        print(error.message, "|", error.hint)
full(-1)
run.append("turns.jsonl", {"number": 3})
full(20)
with run:
    raise KeyboardInterrupt
"""


def test_a_full_disk_loses_nothing_that_was_written_and_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "run")], capture_output=True, text=True
    )
    said = done.stdout.splitlines()
    assert len(said) == 3 and all("cannot write" in line and "--resume" in line for line in said)
    assert "KeyboardInterrupt" in done.stderr.splitlines()[-1], (
        "the report names what ended the run"
    )
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.endswith(".tmp")]
    with start(tmp_path / "run", resume=True) as run:
        assert [row["number"] for row in run.read("turns.jsonl")] == [1, 3]
        assert (run.path / "best.py").read_text() == "first" and manifest(run)[
            "status"
        ] == "running"
