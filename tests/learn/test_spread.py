"""A function over many batches in several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dvk.learn.spread import spread
from tests.python_path import python_path

SLOW = """
from dvk.learn.spread import spread
from tests.learn.spreading import told

if __name__ == "__main__":
    # Between two results it waits for the reader, and the workers for input.
    for pid in spread(told, [["x"]] * 100_000, 2):
        print(pid, flush=True)
"""


def double(batch: list[int]) -> list[int]:
    return [2 * one for one in batch]


def test_results_come_in_the_order_of_the_batches() -> None:
    assert list(spread(double, [[n] for n in range(9)], 2)) == [[2 * n] for n in range(9)]


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    top = str(Path(__file__).parents[2])
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=top,
        env={**os.environ, "PYTHONPATH": python_path(top)},
    )
    assert parent.stdout is not None
    workers = {int(parent.stdout.readline()) for _ in range(100)}
    assert workers and all(map(alive, workers))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    end = time.monotonic() + 30
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def alive(pid: int) -> bool:
    """Whether it runs: an unreaped zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
