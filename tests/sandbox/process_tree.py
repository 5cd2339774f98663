"""Processes of a sandbox, as the tests look for them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def gone(pid: int, within_s: float = 5.0) -> bool:
    """The process has ended (a zombie counts: it runs nothing)."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def below(root: int) -> list[int]:
    """Process ids of the descendants, zombies included."""
    done = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    parents = {int(pid): int(parent) for pid, parent in map(str.split, done.stdout.splitlines())}
    found, queue = [], [root]
    while queue:
        children = [pid for pid, parent in parents.items() if parent == queue[0]]
        found += children
        queue = queue[1:] + children
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
