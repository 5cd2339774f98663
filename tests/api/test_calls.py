"""Calls of a running model: recorded by kind with their number, written as tasks that `dvk eval` weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dvk
from dvk import tasks
from dvk.api.calls import MOST_KINDS
from dvk.api.captured_script import run_script
from dvk.cli import capture
from dvk.errors import UsageError
from dvk.pipelines.eval.suites import read

SCRIPT = """
import sys

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x, scale=1.0):
        return torch.sigmoid(x) * self.weight * scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Gate(8), Gate(8), Gate(4)])

    def forward(self, x):
        for layer in self.layers[:2]:
            x = layer(x, scale=2.0)
        return self.layers[2](x[:, :4])


if __name__ == "__main__":
    net = Net().eval()
    for batch in map(int, sys.argv[1:]):
        net(torch.randn(batch, 8))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    (tmp_path / "serving.py").write_text(SCRIPT)
    return tmp_path / "serving.py"


def test_calls_are_counted_by_class_weights_and_arguments(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(script.parent))
    from serving import Net  # type: ignore[import-not-found]

    net: Any = Net().eval()
    with dvk.capture(net) as calls:
        for batch in (2, 2, 3):
            net(torch.randn(batch, 8))
        nn.Sequential(nn.Linear(2, 2))(torch.randn(1, 2))  # of another model
    net(torch.randn(9, 8))  # after it
    counted = {call.label: call.launches for call in calls.found.values()}
    rows = json.loads((calls.save(script.parent / "calls") / "index.json").read_text())
    assert [row["launches"] for row in rows] == [4, 2, 2, 1]
    assert sorted(task.launches or 0 for task in read(script.parent / "calls")) == [1, 2, 2, 4]
    assert counted == {
        "float32[2, 8], scale=2.0": 4,
        "float32[3, 8], scale=2.0": 2,
        "float32[2, 4]": 2,
        "float32[3, 4]": 1,
    }
    with dvk.capture(net, only=["Net"]) as whole:
        net(torch.randn(2, 8))
    assert [call.launches for call in whole.found.values()] == [1]


@pytest.mark.slow
def test_a_program_leaves_tasks_with_launches(script: Path) -> None:
    folder = script.parent / "calls"
    command = [sys.executable, "-m", "dvk", "capture", folder, "--"]
    done = subprocess.run(
        [*command, sys.executable, script, "2", "2", "3"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((folder / "index.json").read_text())
    assert [(row["class"], row["launches"]) for row in rows] == [("Gate", n) for n in (4, 2, 2, 1)]
    suite = read(folder)
    assert sorted(task.launches or 0 for task in suite) == [1, 2, 2, 4]
    assert {task.groups["class"] for task in suite} == {"Gate"}
    task = tasks.load(str(folder / "Gate_1.py"))
    assert task.inputs[0].shape == (2, 8) and task.entry == "Model"
    again = subprocess.run([*command, sys.executable, script, "2"], capture_output=True, text=True)
    assert again.returncode == 2 and "not an empty folder" in again.stderr


def test_nothing_recorded_is_an_error(tmp_path: Path) -> None:
    with dvk.capture(nn.Linear(2, 2)) as calls:
        pass
    with pytest.raises(UsageError, match="no call was recorded"):
        calls.save(tmp_path / "calls")


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor, step: object = None) -> torch.Tensor:
        return x * self.weight


def test_calls_under_autocast_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = Scale()
    with dvk.capture(scale) as calls:
        scale(torch.ones(2))
        with torch.autocast("cpu", torch.bfloat16):
            scale(torch.ones(2))
            scale(torch.ones(3, 2))
    assert [call.launches for call in calls.found.values()] == [1]
    with dvk.capture(scale) as none, torch.autocast("cpu", torch.bfloat16):
        scale(torch.ones(2))
    with pytest.raises(UsageError, match="no call was recorded"):
        none.save(tmp_path / "calls")
    assert "left out: 1 calls under torch.autocast" in capsys.readouterr().err


def test_kinds_do_not_grow_with_the_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = Scale()
    objects = [object() for _ in range(3)]  # all at once: their addresses differ
    with dvk.capture(scale) as calls:
        for one in objects:
            scale(torch.ones(2), one)
    assert [call.launches for call in calls.found.values()] == [3]
    with dvk.capture(scale) as counting:
        for step in range(MOST_KINDS + 5):
            scale(torch.ones(2), step)
        scale(torch.ones(2), 0)
    assert len(counting.found) == MOST_KINDS
    assert next(iter(counting.found.values())).launches == 2
    counting.found = dict(list(counting.found.items())[:1])  # writing one is enough here
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    counting.save(tmp_path / "calls")
    assert "left out: 5 calls of Scale" in capsys.readouterr().err


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what running a script as the main module changes."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    former = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, former)


@pytest.mark.usefixtures("own_process")
def test_a_script_that_fails_keeps_its_error_and_calls(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = script.parent / "calls"
    early = script.parent / "early.py"
    early.write_text("raise KeyError('mine')")
    with pytest.raises(KeyError, match="mine"):
        run_script(str(folder), (), str(early), ())
    assert "no tasks are written: no call was recorded" in capsys.readouterr().err
    early.write_text("raise SystemExit(7)")
    with pytest.raises(SystemExit, match="7"):
        run_script(str(folder), (), str(early), ())
    early.write_text("raise SystemExit(0)")
    with pytest.raises(UsageError, match="no call was recorded"):
        run_script(str(folder), (), str(early), ())
    folder.mkdir()
    (folder / "log").write_text("of the script")
    with pytest.raises(ValueError, match="invalid literal"):
        run_script(str(folder), (), str(script), ("2", "x"))  # its second batch is no number
    rows = json.loads((script.parent / "calls-2" / "index.json").read_text())
    assert [row["launches"] for row in rows] == [2, 1]
    assert [one.name for one in folder.iterdir()] == ["log"]


def test_bad_input_is_one_error(tmp_path: Path) -> None:
    python = sys.executable
    (tmp_path / "file").write_text("")
    for folder, program, message in [
        ("calls", ["--"], "no program is given"),
        ("calls", ["--", "serve"], "`serve` is not python SCRIPT.py"),
        ("calls", ["--", python, "-m", "serve"], "is not python SCRIPT.py"),
        ("calls", ["--", str(tmp_path / "python9"), "serve.py"], "cannot be run: No such file"),
        (".", ["--", python, "serve.py"], "is not an empty folder"),
        ("file", ["--", python, "serve.py"], "is not an empty folder"),
        ("file/calls", ["--", python, "serve.py"], "cannot be made"),
    ]:
        with pytest.raises(UsageError, match=message):
            capture.command(tmp_path / folder, program)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


WAITING = """
    import time
    open("ready", "w").close()
    try:
        time.sleep(100)
    finally:
        time.sleep(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "whole_group"),
    [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGTERM, False)],
)
def test_a_program_that_is_stopped_saves(script: Path, number: int, whole_group: bool) -> None:
    script.write_text(SCRIPT + WAITING)
    command = [sys.executable, "-m", "dvk", "capture", "calls", "--", sys.executable, script, "2"]
    running = subprocess.Popen(command, cwd=script.parent, start_new_session=True)
    try:
        end = time.monotonic() + 60
        while not (script.parent / "ready").exists() and time.monotonic() < end:
            time.sleep(0.05)
        (os.killpg if whole_group else os.kill)(running.pid, number)
        assert running.wait(60) == 1
    finally:
        with suppress(ProcessLookupError):  # it and the program have ended
            os.killpg(running.pid, signal.SIGKILL)
    rows = json.loads((script.parent / "calls" / "index.json").read_text())
    assert [row["launches"] for row in rows] == [2, 1]
