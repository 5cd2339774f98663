"""Commands on a disk that fills up: exit 2 and one sentence, and a run that resumes once there is room."""

from __future__ import annotations

import errno
import json
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dvk import cli
from tests.cli.warm import dvk

FILES = Path(__file__).parent / "harness" / "files"
SIZE, LEFT = 256 << 10, (0, 8 << 10)
EVAL = (
    "--turns",
    "1",
    "--set",
    "judge.search_s=0.05",
    "--set",
    "judge.num_seeds=1",
    "--device",
    "cpu",
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", folder], capture_output=True
    ).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path, left: int) -> Path:
    filler = disk / "filler"
    filler.write_bytes(bytes(SIZE - left - 4096))
    return filler


def refused(done: subprocess.CompletedProcess[str]) -> bool:
    return (
        "Traceback" not in done.stderr and "No space left" in done.stderr and "hint:" in done.stderr
    )


@pytest.mark.slow
@pytest.mark.parametrize("left", LEFT)
def test_verify_goes_on_once_there_is_room(tmp_path: Path, disk: Path, left: int) -> None:
    filler = fill(disk, left)
    files = (
        FILES / "affine.py",
        FILES / "good" / "torch_affine.py",
        FILES / "bad" / "one_element.py",
        "--tier",
        "smoke",
        "--json",
    )
    assert refused(dvk("verify", *files, "--out", disk / "run", cwd=tmp_path, exits=2))
    filler.unlink()
    done = dvk("verify", *files, "--out", disk / "run", "--resume", cwd=tmp_path, exits=1)
    assert [row["status"] for row in json.loads(done.stdout)] == ["ok", "mismatch"]
    assert len((disk / "run" / "verdicts.jsonl").read_text().splitlines()) == 2
    assert not list((disk / "run").glob(".*.tmp"))


@pytest.mark.slow
def test_eval_goes_on_once_there_is_room(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "affine.py").write_text((FILES / "affine.py").read_text())
    filler = fill(disk, 12 << 10)
    assert refused(dvk("eval", "suite", *EVAL, "--out", disk / "run", cwd=tmp_path, exits=2))
    filler.unlink()
    found = json.loads(
        dvk(
            "eval", "suite", *EVAL, "--out", disk / "run", "--resume", "--json", cwd=tmp_path
        ).stdout
    )
    assert found["num_tasks"] == 1 and found["fast_p"]["0"] == 1.0


def test_what_a_machine_runs_out_of_is_named_and_exits_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(error: Exception) -> int:
        def app() -> None:
            raise error

        monkeypatch.setattr(cli, "app", app)
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(str(stop.value.code))

    assert ended(OSError(errno.ENOSPC, "No space left on device", "/x/y.db")) == 2
    assert "No space left on device: `/x/y.db`" in capsys.readouterr().err
    assert (
        ended(sqlite3.OperationalError("database or disk is full")) == 2
        and "hint:" in capsys.readouterr().err
    )
    for bug in (OSError(errno.ENOENT, "gone"), sqlite3.OperationalError("no such table: x")):
        monkeypatch.setattr(cli, "app", lambda bug=bug: (_ for _ in ()).throw(bug))
        with pytest.raises(type(bug)):
            cli.main()
