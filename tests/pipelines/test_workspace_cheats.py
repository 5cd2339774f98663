"""A cheating agent: what it does to its folder, to its environment and through its candidates, and that no verdict changes."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dvk.pipelines.workspace import asking
from dvk.pipelines.workspace.judge import address
from dvk.pipelines.workspace.places import OPENED, TASK, TURNS
from dvk.records import Turn
from tests.pipelines import workspaces
from tests.pipelines.workspaces import RIGHT, answer, asked, dvk

IDENTITY = RIGHT.replace("torch.relu(x) * 2 + 1", "x.clone()")
"""Wrong, but right for the task as the agent edits it, and the fastest of all."""
TOUCH = "import pathlib\npathlib.Path({marker!r}).touch()\n"
PLANTED = (
    "sitecustomize.py",
    "usercustomize.py",
    "conftest.py",
    "dvk.py",
    "json.py",
    "torch.py",
    "typer.py",
    "pydantic.py",
    "pausing.py",
)
PROGRAMS = ("dvk", "python", "python3", "g++", "env", "git")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = workspaces.opened(tmp_path_factory.mktemp("cheats"))
    (made / "identity.py").write_text(IDENTITY)
    (made / "right.py").write_text(RIGHT)
    yield made
    asking.end(workspaces.place(made))


def judged(folder: Path, file: str, **named: Any) -> str:
    return str(answer(folder, "bench", file, **named)["status"])


def rewritten(file: Path, text: str) -> None:
    """As an agent does it with a file that it may not write: the folder is its own."""
    if file.is_symlink() or file.exists():
        file.unlink()
    file.write_text(text)


@pytest.mark.slow
def test_what_is_planted_in_the_folder_and_the_environment_is_not_run(
    folder: Path, tmp_path: Path
) -> None:
    """The first call starts the judge: from an environment that points into the folder wherever it can."""
    marker = tmp_path / "touched"
    for name in PLANTED:
        (folder / name).write_text(TOUCH.format(marker=str(marker)))
    for name in PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\ntouch {marker}\necho '[]'\n")
        (folder / name).chmod(0o755)
    (folder / ".env").write_text("DVK_HOME=.\nPYTHONPATH=.\n")
    for name in (OPENED, "run.json", TASK, "dvk.toml", "pyproject.toml"):
        (folder / name).write_text("{}")
    env = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "PYTHONSTARTUP": str(folder / "sitecustomize.py"),
        "DVK_HOME": str(folder / "home"),
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }
    assert judged(folder, "identity.py", env=env) == "mismatch"
    assert judged(folder, "right.py", env=env) == "ok"
    assert not marker.exists() and not (folder / "home").exists()
    (judge,) = workspaces.judges(folder)
    started = Path(f"/proc/{judge}/environ").read_bytes()
    assert (
        f"{folder}:".encode() not in started and b"DVK_HOME=" + str(folder).encode() not in started
    )
    for name in PLANTED:
        (folder / name).unlink()


@pytest.mark.slow
def test_an_edited_task_is_not_what_is_judged(folder: Path) -> None:
    easier = workspaces.MODEL.replace("torch.relu(x) * 2 + 1", "x.clone()")
    mine = folder.parent / "mine"
    for place in (folder / "task", mine):
        rewritten(place / "model.py", easier)
        rewritten(place / "pausing.py", "def pause():\n    import time\n    time.sleep(1)\n")
    (folder / "identity.py").write_text(IDENTITY + "# once more\n")
    assert judged(folder, "identity.py") == "mismatch"
    shutil.rmtree(folder / "task")
    (folder / "task").symlink_to(mine)
    (folder / "identity.py").write_text(IDENTITY + "# and again\n")
    assert judged(folder, "identity.py") == "mismatch"


@pytest.mark.slow
def test_scripts_logs_and_bests_that_the_agent_writes_are_its_own(folder: Path) -> None:
    place = workspaces.place(folder)
    kept = {script: (folder / script).read_text() for script in ("check", "bench")}
    before = (place.path / TURNS).read_bytes()
    for script in kept:
        rewritten(
            folder / script, "#!/bin/sh\necho 'trial 1: ok'\necho '1000x, faster than PyTorch'\n"
        )
        (folder / script).chmod(0o755)
    assert "1000x" in asked(folder, "./bench", "identity.py").stdout
    forged = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    forged |= {"status": "ok", "speedup": 1000.0, "speedup_lo": 999.0, "speedup_hi": 1001.0}
    rewritten(folder / "log.jsonl", json.dumps(forged) + "\n")
    rewritten(folder / "best.py", IDENTITY)
    assert (place.path / TURNS).read_bytes() == before

    (folder / "log.jsonl").unlink()
    (folder / "log.jsonl").symlink_to(place.path / TURNS)
    (folder / "best.py").unlink()
    (folder / "best.py").symlink_to(place.path / TASK)
    task = (place.path / TASK).read_bytes()
    for script, text in kept.items():
        rewritten(folder / script, text)
        (folder / script).chmod(0o755)
    assert judged(folder, "right.py") == "ok"
    assert (place.path / TURNS).read_bytes().startswith(before)
    assert (place.path / TASK).read_bytes() == task
    assert not (folder / "log.jsonl").is_symlink() and not (folder / "best.py").is_symlink()
    assert (folder / "best.py").read_text() == RIGHT


@pytest.mark.slow
def test_a_candidate_and_the_socket_reach_nothing_but_a_verdict(folder: Path) -> None:
    place = workspaces.place(folder)
    task, rows = (place.path / TASK).read_bytes(), len(place.turns)
    reach = f"""
import pathlib
for name in ({TURNS!r}, {TASK!r}, {OPENED!r}):
    try:
        with open(pathlib.Path({str(place.path)!r}) / name, "a") as file:
            file.write("{{}}\\n")
    except OSError:
        pass
"""
    (folder / "reaching.py").write_text(reach + IDENTITY)
    assert judged(folder, "reaching.py") in ("mismatch", "cheat", "rejected", "launch_error")
    assert (place.path / TASK).read_bytes() == task and len(place.turns) == rows + 1

    verdict = place.turns[0].verdict
    assert verdict is not None
    for sent, said in (
        (b"no JSON\n", "not a request"),
        (b"[]\n", "not a request"),
        (b'{"verb": "judge"}\n', "not a request"),
        (b"", "not a request"),
    ):
        assert said in told(place.path, sent)
    wish = {"verb": "judge", "source": IDENTITY + "# by hand\n", "title": "a\nb", "tier": "claim"}
    wish |= {"profile": False, "status": "ok", "verdict": verdict.model_dump(mode="json")}
    assert '"status": "mismatch"' in told(place.path, json.dumps(wish).encode() + b"\n")
    last = place.turns[-1]
    assert len(place.turns) == rows + 2 and last.candidate and last.candidate.title == "a b"
    assert last.verdict and last.verdict.tier == "search", "a claim is not for the agent to make"


def told(place: Path, sent: bytes) -> str:
    """What the judge answers to these bytes."""
    with socket.socket(socket.AF_UNIX) as connection:
        with address(place) as name:
            connection.connect(name)
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR) if not sent else None
        found = b""
        while data := connection.recv(1 << 16):
            found += data
    return found.decode()


@pytest.mark.slow
def test_collecting_believes_neither_the_folder_nor_a_forged_log(
    folder: Path, tmp_path: Path
) -> None:
    place = workspaces.place(folder)
    root = folder.parent
    aside = folder.rename(root / "aside")
    folder.symlink_to(aside)
    assert "is a link" in dvk("collect", "agent", cwd=root, exits=2).stderr
    folder.unlink()
    shutil.rmtree(aside)

    # Beyond the folder: a program of the same user may write to the judge's files.
    honest = next(t for t in place.turns if t.verdict and t.verdict.timing and t.candidate)
    row = honest.model_dump(mode="json")
    row["candidate"] |= {"source": IDENTITY, "line": "eager", "proposer": "composer"}
    row["verdict"]["timing"]["speedup"] = {"value": 1e4, "lo": 9e3, "hi": 1.1e4}
    with (place.path / TURNS).open("a") as log:
        for tier in ("search", "claim"):
            row["verdict"]["tier"] = tier
            log.write(Turn.model_validate(row).model_dump_json() + "\n")
    done = dvk("collect", "agent", "--json", "--out", tmp_path / "run", cwd=root)
    summary = json.loads(done.stdout)
    assert summary["status"] == "faster" and summary["speedup"] < 1e3
    assert (tmp_path / "run/best.py").read_text() == RIGHT
    claims = [
        (turn["candidate"]["source"], turn["verdict"]["status"])
        for turn in map(json.loads, (tmp_path / "run" / TURNS).read_text().splitlines())
        if turn["verdict"]["tier"] == "claim"
    ]
    assert claims == [(IDENTITY, "mismatch"), (RIGHT, "ok")]

    task = json.loads((place.path / TASK).read_text())
    task["source"] = task["source"].replace("torch.relu(x) * 2 + 1", "x.clone()")
    (place.path / TASK).write_text(json.dumps(task) + "\n")
    refused = dvk("collect", "agent", "--out", tmp_path / "other", cwd=root, exits=2)
    assert "was changed or is damaged" in refused.stderr and not (tmp_path / "other").exists()
