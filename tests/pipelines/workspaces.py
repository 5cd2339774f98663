"""Workspaces as the tests open them: a small task that waits, so that a gain is certain on a busy machine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from dvk.pipelines.workspace.places import Place, place_of
from tests.cli import warm
from tests.cli.optimizing import SETTINGS

MODEL = """
import torch
import pausing


class Model(torch.nn.Module):
    def forward(self, x):
        pausing.pause()
        return torch.relu(x) * 2 + 1


def get_inputs():
    return [torch.randn(16, 301)]
"""
PAUSING = """
import time


def pause():
    time.sleep(0.02)
"""
RIGHT = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1
"""
SETS = tuple(word for setting in SETTINGS for word in ("--set", setting))


def opened(root: Path, *options: object) -> Path:
    """A workspace `agent` below `root`, for a task in the folder `mine` next to it."""
    mine = root / "mine"
    mine.mkdir()
    (mine / "model.py").write_text(MODEL)
    (mine / "pausing.py").write_text(PAUSING)
    made = dvk("mine/model.py", "agent", "--device", "cpu", *SETS, *options, cwd=root)
    assert "SKILL.md" in made.stdout
    return root / "agent"


def dvk(*args: object, cwd: Path, exits: int | None = 0) -> subprocess.CompletedProcess[str]:
    return warm.dvk("workspace", *args, cwd=cwd, exits=exits)


def asked(
    folder: Path, *command: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command that the agent runs in its folder."""
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
    )


def answer(folder: Path, verb: str, file: str, **named: Any) -> dict[str, Any]:
    """What `./VERB FILE --json` prints."""
    done = asked(folder, f"./{verb}", file, "--json", **named)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def place(folder: Path) -> Place:
    return Place(place_of(folder))


def judges(folder: Path) -> list[int]:
    """Process ids of the folder's judge."""
    wanted = str(place(folder).path.resolve()).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted in words and any(b"workspace.judge" in word for word in words):
                found.append(int(entry.name))
    return found
