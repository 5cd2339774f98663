"""The child processes of tests that run many generated kernels: compiling them takes most of the time, and one core a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dvk import machine

ROOT = Path(__file__).resolve().parents[2]
MOST = 8
"""Each holds a CUDA context."""
LIMIT_S = 280.0


def share(arguments: list[str]) -> Callable[[], bool]:
    """Whether the next case is this child's; `arguments` end with the child's number and how many there are, or hold neither."""
    number, total = map(int, arguments[1:3]) if len(arguments) > 2 else (0, 1)
    at = iter(range(1 << 62))
    return lambda: next(at) % total == number


def answers(module: str, mode: str) -> Iterator[dict[str, Any]]:
    """Every line of JSON that the children print: one child, or on a GPU one for every second core, each with a share of the cases.

    Importing Triton fixes whether it interprets: `interpret`, `own` and `production` do.
    """
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    if mode in ("interpret", "own", "production"):
        env["TRITON_INTERPRET"] = "1"
    total = max(1, min(MOST, machine.num_cores() // 2)) if mode == "gpu" else 1
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, mode, str(number), str(total)],
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(total)
    ]
    try:
        for child in started:
            out, error = child.communicate(timeout=LIMIT_S)
            assert child.returncode == 0, error[-3000:]
            yield from (json.loads(line) for line in out.splitlines() if line.startswith("{"))
    finally:
        for child in started:
            child.kill()
