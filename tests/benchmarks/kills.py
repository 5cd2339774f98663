"""Does a training survive `kill -9` at any moment, with nothing lost but the current step?

Trains once undisturbed and once with kills at random moments, in the world of `tests.pipelines.world` (recorded verdicts, one thread).
After every kill the last checkpoint is restored and compared, bit by bit, with what was in memory when it was written: weights,
optimizer, random state, library. In the end both trainings have the same figures, each once, the same weights and the same library.

    python -m tests.benchmarks.kills --count 10

One JSON line a kill, then a summary; exit 1 when anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from dvk.agents import TaskContext
from dvk.pipelines.train.state import LIBRARY, TrainState, newest
from dvk.pipelines.train.task_sampler import TaskSampler
from dvk.runs import RunFolder
from tests.pipelines import world

TIMES = {"time", "created_at", "updated_at"}
"""Columns of the library that two trainings need not share."""
AIMED = 0.3
"""Share of the kills that are aimed at the writing of a checkpoint: a twentieth of a step, which moments drawn evenly would miss."""
WRITING_S = 0.1
"""About how long that takes."""


def digests(state: TrainState) -> dict[str, str]:
    """Hashes of a checkpoint's whole content, from memory and the run's library."""
    return {
        "weights": digest(state.backbone.model.state_dict()),
        "optimizer": digest(state.learner.optimizer.state_dict()),
        "random": digest(torch.get_rng_state()),
        "library": library(state.library.path),
        "memory": digest(state.memory),
        "step": str((state.step, state.learner.step_number)),
    }


def digest(value: Any) -> str:
    """Compare tensors, numbers and texts, however nested."""
    found = hashlib.sha256()
    for part in parts(value):
        found.update(part)
    return found.hexdigest()[:16]


def parts(value: Any) -> Iterator[bytes]:
    """Its bytes, in one order."""
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype}{tuple(value.shape)}".encode()
        yield value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from parts(value[key])
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from parts(inner)
    else:
        yield repr(value).encode()


def library(path: Path, *, times: bool = True) -> str:
    """Hash of the skills and of what happened to them."""
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        rows = [
            dict(row)
            for table in ("skills", "events")
            for row in connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
        ]
    connection.close()
    return digest([{k: v for k, v in row.items() if times or k not in TIMES} for row in rows])


def child(out: Path, steps: int) -> None:
    """A training that records a checkpoint's content before it counts."""
    keep, draw = TrainState.keep, TaskSampler.step

    def noted(self: TrainState, *given: Any) -> None:
        self.step += 1
        (out.parent / f"noted_{self.step}.json").write_text(json.dumps(digests(self)))
        self.step -= 1
        keep(self, *given)

    def begun(self: TaskSampler, step: int) -> list[TaskContext]:
        print("begun", flush=True)
        return draw(self, step)

    TrainState.keep, TaskSampler.step = noted, begun  # type: ignore[method-assign]
    world.run(out.parent, out, steps)


def start(out: Path, steps: int) -> subprocess.Popen[str]:
    """A training in a separate process, as it begins with its first step."""
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.kills",
        "--child",
        str(out),
        "--steps",
        str(steps),
    ]
    errors = (out.parent / "stderr.txt").open("a")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "begun":
        process.kill()
        raise SystemExit(
            f"the training did not begin: {(out.parent / 'stderr.txt').read_text()[-2000:]}"
        )
    return process


def survives(process: subprocess.Popen[str], out: Path, delay: float, aimed: bool) -> bool:
    """Wait for a moment, if `aimed` counted from when a checkpoint begins to be written; False: the training was done before."""
    while aimed and not any((out / "checkpoints").glob(".step_*")):
        if process.poll() is not None:
            return False
        time.sleep(0.002)
    try:
        process.wait(delay)
    except subprocess.TimeoutExpired:
        return True
    return False


def restored(out: Path) -> tuple[int, bool]:
    """The last whole step, and whether it comes back as it was."""
    kept = newest(out / "checkpoints")
    if kept is None:
        return 0, True
    with (
        RunFolder.open(
            out,
            command="train",
            name=world.request(out.parent, out, 1).start.replace("/", "_").replace(":", "-"),
            argv=(),
            config=world.CONFIG,
            resume=True,
        ) as run,
        TrainState.restore(run, "", None, 1, world.CONFIG) as state,
    ):
        noted = json.loads((out.parent / f"noted_{state.step}.json").read_text())
        return state.step, digests(state) == noted


def figures(out: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without times."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.endswith("_s")} for row in rows]


def trial(home: Path, count: int, seed: int) -> dict[str, Any]:
    """Kill a training `count` times and compare it with an undisturbed one."""
    rng, steps = random.Random(seed), count + 4
    whole, cut = (home / name / "world" / "run" for name in ("whole", "cut"))
    process, began = start(whole, steps), time.monotonic()
    assert process.wait() == 0, (whole.parent / "stderr.txt").read_text()[-2000:]
    step_s = (time.monotonic() - began) / steps
    kills, alike = 0, True
    while kills < count:
        process = start(cut, steps)
        delay, aimed = rng.uniform(0.0, 1.6 * step_s), rng.random() < AIMED
        if not survives(process, cut, rng.uniform(0.0, WRITING_S) if aimed else delay, aimed):
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        rows = len(figures(cut)) - 1 if (cut / "metrics.jsonl").exists() else 0
        aside = sorted(p.name for p in (cut / "checkpoints").glob(".step_*"))
        step, same = restored(cut)
        alike = alike and same
        print(
            json.dumps(
                {
                    "kill": kills,
                    "after_s": None if aimed else round(delay, 2),
                    "rows": rows,
                    "half_written": aside,
                    "checkpoint": step,
                    "bit_identical": same,
                }
            ),
            flush=True,
        )
    completed = start(cut, steps).wait() == 0 if kills == count else True
    ends = [newest(out / "checkpoints") for out in (whole, cut)]
    equal = {
        "completed": completed
        and all(end is not None and end.name == f"step_{steps:06d}" for end in ends),
        "figures": figures(whole) == figures(cut),
        "weights": len({(end / "model.safetensors").read_bytes() for end in ends if end}) == 1,
        "library": len({library(end / LIBRARY, times=False) for end in ends if end}) == 1,
    }
    told = {
        "kills": kills,
        "steps": steps,
        "step_s": round(step_s, 2),
        "restored_bit_identically": alike,
        **equal,
    }
    return {"ok": alike and all(equal.values()), **told}


def main() -> int:
    """The command line above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10, help="kills")
    parser.add_argument("--seed", type=int, default=0, help="of their moments")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(given.child, given.steps)
        return 0
    with tempfile.TemporaryDirectory() as home:
        told = trial(Path(home), given.count, given.seed)
    print(json.dumps(told))
    return 0 if told["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
