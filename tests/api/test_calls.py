"""Calls of a running model: recorded by kind with their number, written as tasks that `dvk eval` weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dvk
from dvk import tasks
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
