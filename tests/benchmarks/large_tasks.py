"""Seconds and memory of verdicts on large tasks: pointwise, reduction and product, by bytes of inputs and outputs.

    python -m tests.benchmarks.large_tasks --device cuda --bytes 1e8 1e9 6e9
    python -m tests.benchmarks.large_tasks --bytes 2e8 --kinds pointwise

Prints a line a task: seconds of the second verdict of a session (the first starts processes), by stage, and the most memory that all of the
session's processes held together, over the bytes of inputs and outputs. Asserted nowhere: the figures depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path

from dvk import tasks
from dvk.config import Config
from dvk.harness import judge
from dvk.records import Candidate, Task

SOURCES = {
    "pointwise": ("silu(x) * y + {number}.0", "x, y", 3),
    "reduction": ("logsumexp(x * x, -1) + {number}.0", "x", 1),
    "product": ("relu(x @ y) + {number}.0", "x, y", 3),
}
"""Body of forward, arguments, and tensors of equal size among inputs and outputs."""

FILE = """import torch
import torch.nn as nn


class {name}(nn.Module):
    def forward(self, {arguments}):
        return torch.nn.functional.{body}


def get_inputs():
    return [torch.randn({shape}) for _ in range({count})]
"""


def source(kind: str, size: float, name: str, comment: str = "") -> str:
    """A file of a task of about this many bytes, or of a candidate for it."""
    body, arguments, tensors = SOURCES[kind]
    if kind == "reduction":
        body = f"silu(torch.{body})"
    side = int((size / tensors / 4) ** 0.5)
    shape = f"{side}, {side}" if kind == "product" else f"{int(size / tensors / 4 / 4096)}, 4096"
    count = arguments.count(",") + 1
    filled = body.format(number=1)
    text = FILE.format(name=name, arguments=arguments, body=filled, shape=shape, count=count)
    return f"{comment}{text}"


class Memory:
    """The most memory that this process's descendants hold, or that a GPU has in use, sampled in a thread."""

    def __init__(self, device: str):
        self.device, self.most = device, 0
        self._end = threading.Event()
        self._before = self._now()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.02):
            self.most = max(self.most, self._now() - self._before)

    def _now(self) -> int:
        if self.device == "cuda":
            import torch

            free, total = torch.cuda.mem_get_info()
            return int(total - free)
        return sum(_shared_out(pid) for pid in _descendants(os.getpid()))


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(entry))
    found, queue = [], [pid]
    while queue:
        below = parents.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _shared_out(pid: int) -> int:
    """Memory of a process, shared pages divided among those that map them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def measured(kind: str, size: float, device: str) -> dict[str, object]:
    """Figures of one task."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.py"
        path.write_text(source(kind, size, "Model"))
        began = time.perf_counter()
        task: Task = tasks.load(str(path), device=device)
        loaded_s = time.perf_counter() - began
        backend = "triton" if device == "cuda" else "cpp"
        candidates = [
            Candidate(
                source=source(kind, size, "ModelNew", f"# {n}\n"),
                backend=backend,
                proposer="benchmark",
            )
            for n in range(2)
        ]
        config = Config.model_validate({})
        with Memory(device) as memory:
            began = time.perf_counter()
            first, second = judge(task, candidates, config=config)
            total_s = time.perf_counter() - began
    return {
        "kind": kind,
        "bytes": int(size),
        "status": [first.status.value, second.status.value],
        "error": second.error,
        "load_s": round(loaded_s, 2),
        "both_s": round(total_s, 2),
        "verdict_s": round(second.seconds, 2),
        "stages_s": {name: round(s, 2) for name, s in second.stages_s.items()},
        "most_bytes": memory.most,
        "over_inputs_and_outputs": round(memory.most / size, 2),
    }


def main() -> None:
    """Measure each task, and print a line for it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", default="cpu")
    options.add_argument("--bytes", nargs="+", type=float, default=[1e8])
    options.add_argument("--kinds", nargs="+", default=list(SOURCES))
    given = options.parse_args()
    for size in given.bytes:
        for kind in given.kinds:
            print(json.dumps(measured(kind, size, given.device)), flush=True)


if __name__ == "__main__":
    main()
