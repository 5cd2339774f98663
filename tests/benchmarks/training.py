"""Time and errors of training drop-ins under the plan that a search measures first, beside eager and torch.compile.

    python -m tests.benchmarks.training data/tasks/train --device cuda --backend triton --limit-s 230 --out rows.jsonl
    OMP_NUM_THREADS=1 python -m tests.benchmarks.training data/tasks/train --sizes cpu

A row per file: milliseconds of forward and backward (median of paired rounds), how many times faster than eager and than torch.compile
with a 95 % interval, the largest error of a result or gradient against double precision, eager's beside it; on a GPU also peak megabytes,
and the microseconds that the host takes to issue a step. Rows are written as they come. With `--workers` all files are composed and
compiled first, in as many processes, and then timed alone. `--prepare-s` bounds that. With `--kernels` the last rows list what eager and
the drop-in launch on the GPU, with microseconds.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import multiprocessing
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dvk import target, tasks
from dvk.composer.capture import export
from dvk.composer.plan_space import PlanSpace
from dvk.harness.processes.training_step import TrainingStep
from dvk.harness.transport.calls import call, describe
from dvk.records import BackendName, Task
from dvk.tasks.build import build, construct_candidate

MOST_TRUTH = 1 << 28
"""Elements of the inputs beyond which no double precision run is made."""


def sized(text: str, sizes: str) -> str:
    """A file's text at its `cpu` or `small` sizes; its own for `native`."""
    if sizes == "native":
        return text
    return re.sub(rf"^([A-Z][A-Z0-9_]*) = .*?# {sizes}: (\d+).*$", r"\1 = \2", text, flags=re.M)


def rounds(
    steps: dict[str, Callable[[], Any]], device: str, seconds: float
) -> dict[str, list[float]]:
    """Milliseconds of each step, in turns."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step(), step()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(found.values()))) < 5:
        for name, step in steps.items():
            found[name].append(once(step, device))
    return found


def interval(ratios: list[float]) -> list[float]:
    """The median, and a 95 % interval of it from the order of independent rounds."""
    ordered, count = sorted(ratios), len(ratios)
    away = int(0.98 * count**0.5) + 1
    low, high = max(count // 2 - away, 0), min((count - 1) // 2 + away, count - 1)
    return [round(v, 3) for v in (statistics.median(ordered), ordered[low], ordered[high])]


def once(step: Callable[[], Any], device: str) -> float:
    """Milliseconds of a call, on a GPU by events."""
    if device == "cpu":
        before = time.perf_counter()
        step()
        return 1e3 * (time.perf_counter() - before)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    step()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last)


def host_us(
    steps: dict[str, Callable[[], Any]], batches: int = 15, calls: int = 5
) -> dict[str, float]:
    """Microseconds that the host takes to issue a step, the GPU idle at first: the fastest of some batches.

    A batch is short: beyond about a thousand launches in its queue the host waits for the GPU.
    """
    found = dict.fromkeys(steps, float("inf"))
    for _ in range(batches):
        for name, step in steps.items():
            torch.cuda.synchronize()
            before = time.perf_counter()
            for _ in range(calls):
                step()
            found[name] = min(found[name], 1e6 * (time.perf_counter() - before) / calls)
    torch.cuda.synchronize()
    return found


def peak_mb(step: Callable[[], Any], device: str) -> float | None:
    """Megabytes above what was held before; None on a CPU."""
    if device == "cpu":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 1e6, 1)


def worst(got: list[Any], want: list[Any]) -> float:
    """The largest error of a tensor, relative to its largest element."""
    return max(
        float((g.double() - w.double()).abs().max() / w.abs().max().clamp_min(1e-30))
        for g, w in zip(got, want, strict=True)
        if isinstance(w, torch.Tensor) and w.numel()
    )


def composed(path: Path, device: str, backend: BackendName, sizes: str) -> tuple[Task, str]:
    """A file's task, and the text of its drop-in."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / path.name
        file.write_text(sized(path.read_text(), sizes))
        task = tasks.load(str(file), device=device, train=True)
    space = PlanSpace(task, export.trace(task), backend, target.of_machine(device))
    plan, title = space.proposals()[0]
    return task, space.candidate(plan, title).source


def prepared(
    path: Path, device: str, backend: BackendName, sizes: str, compiled: bool
) -> tuple[Task, str]:
    """As `composed`; each arm has run once, so that compilers find their results in their caches."""
    task, source = composed(path, device, backend, sizes)
    for step in arms(task, source, compiled).steps.values():
        step()
    return task, source


def kernels(step: Callable[[], Any], calls: int = 5) -> dict[str, Any]:
    """Microseconds of a step's kernels on the GPU, their sum and how many are launched, the longest first."""
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
    found = sorted(seen.key_averages(), key=lambda one: -one.self_device_time_total)
    each = [
        [one.key[:60], round(one.count / calls, 1), round(one.self_device_time_total / calls, 1)]
        for one in found
        if one.self_device_time_total
    ]
    return {
        "us": round(sum(one[2] for one in each), 1),
        "launches": round(sum(one[1] for one in each), 1),
        "longest": each[:12],
    }


def prepared_by(
    pool: ProcessPoolExecutor, paths: list[Path], how: tuple[Any, ...], limit_s: float | None
) -> dict[Path, tuple[Task, str]]:
    """What the pool has prepared within the limit; then its processes are stopped."""
    futures = {path: pool.submit(prepared, path, *how) for path in paths}
    began = time.monotonic()
    for path, future in futures.items():
        future.add_done_callback(partial(_told, path.stem, began))
    wait(futures.values(), limit_s)
    found = {p: f.result() for p, f in futures.items() if f.done() and f.exception() is None}
    processes = list(pool._processes.values())
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
    pool.shutdown(wait=False, cancel_futures=True)
    return found


def _told(name: str, began: float, future: Any) -> None:
    """Print when a file was prepared."""
    if not future.cancelled():
        told = {"ready": name, "s": round(time.monotonic() - began, 1)}
        print(json.dumps(told | ({"error": repr(e)[:300]} if (e := future.exception()) else {})))


@dataclass(frozen=True)
class Arms:
    """The original and the drop-in with equal weights, a call of both, and a training step of each arm."""

    model: nn.Module
    new: nn.Module
    args: list[Any]
    kwargs: dict[str, Any]
    along: list[torch.Tensor]
    """Cotangents, drawn by the first call with a backward."""
    steps: dict[str, Callable[[], Any]]


def arms(task: Task, source: str, compiled: bool) -> Arms:
    """The arms of one file: eager, dvk and, if asked for, compile."""
    built = build(task)
    args, kwargs = built.inputs(0)
    new = construct_candidate(
        source,
        task,
        built.module,
        (args, kwargs),
        on_device=built.constructed_on_device,
        training=built.model.training,
    )
    new.load_state_dict(built.model.state_dict())
    along: list[torch.Tensor] = []
    call(built.model, args, kwargs, 1, True, along=along)
    forwards = {"eager": built.model, "dvk": new}
    if compiled:
        forwards["compile"] = torch.compile(built.model)
    steps = {
        name: partial(
            TrainingStep(new if name == "dvk" else built.model, forward, partial(list, along)),
            *args,
            **kwargs,
        )
        for name, forward in forwards.items()
    }
    return Arms(built.model, new, args, kwargs, along, steps)


def measured(task: Task, source: str, compiled: bool, seconds: float) -> dict[str, Any]:
    """The row of one file."""
    found = arms(task, source, compiled)
    along, args, kwargs = found.along, found.args, found.kwargs
    models = found.model, found.new
    results = [describe(call(m, args, kwargs, 1, True, along=along))[0] for m in models]
    row: dict[str, Any] = {"fits": bool(found.new.__dict__.get("_dvk_ready"))}
    if not task.stochastic and sum(t.numel() for t in args) <= MOST_TRUTH:
        wide = [t.double() if t.is_floating_point() else t for t in args]
        twin = copy.deepcopy(found.model).double()
        truth = describe(call(twin, wide, kwargs, 1, True, along=along))[0]
        row |= {"eager_error": worst(results[0], truth), "dvk_error": worst(results[1], truth)}
        del twin, truth, wide
    else:
        row |= {"eager_error": None, "dvk_error": worst(results[1], results[0])}
    del results
    times = rounds(found.steps, task.device, seconds)
    row |= {f"{name}_ms": round(statistics.median(ms), 4) for name, ms in times.items()}
    for name in [n for n in times if n != "dvk"]:
        ratios = [theirs / ours for theirs, ours in zip(times[name], times["dvk"], strict=True)]
        row[f"over_{name}"] = interval(ratios)
    if task.device == "cuda":
        row |= {f"{name}_host_us": round(us, 1) for name, us in host_us(found.steps).items()}
    row |= {f"{name}_mb": peak_mb(step, task.device) for name, step in found.steps.items()}
    return row


def hash_of(name: str) -> str:
    """An order of names that is the same in every run and follows nothing else."""
    return hashlib.sha256(name.encode()).hexdigest()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="native", choices=["native", "cpu", "small"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="cpp")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--limit-s", type=float, default=1e9)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument(
        "--prepare-s",
        type=float,
        help="stop the workers then; files that they did not prepare last",
    )
    parser.add_argument("--kernels", action="store_true")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    began = time.monotonic()
    # A table that is cut holds files of both halves.
    every = sorted(given.folder.rglob("*.py"), key=lambda path: hash_of(path.stem))
    paths = [path for path in every if not given.only or path.stem in given.only]
    how = given.device, given.backend, given.sizes
    ahead: dict[Path, tuple[Task, str]] = {}
    if given.workers:
        # torch is imported once, by a process that never asks for the GPU: a module that did would spoil it for all.
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(["torch"])
        pool = ProcessPoolExecutor(given.workers, mp_context=server)
        ahead = prepared_by(pool, paths, (*how, not given.no_compile), given.prepare_s)
        said = {"prepared": len(ahead), "s": round(time.monotonic() - began, 1)}
        print(json.dumps(said), flush=True)
        paths.sort(key=lambda path: path not in ahead)

    def written(row: dict[str, Any]) -> None:
        row["s"] = round(time.monotonic() - began, 1)
        print(json.dumps(row), flush=True)
        if given.out is not None:
            with given.out.open("a") as file_out:
                file_out.write(json.dumps(row) + "\n")

    for path in paths:
        if time.monotonic() - began > given.limit_s:
            continue
        row: dict[str, Any] = {"name": path.stem, "half": path.parent.name}
        try:
            ahead[path] = task, source = ahead.get(path) or composed(path, *how)
            row |= measured(task, source, not given.no_compile, given.seconds)
        except Exception as error:  # noqa: BLE001 - the other files count
            row["error"] = f"{type(error).__name__}: {error}"[:500]
        torch._dynamo.reset()
        written(row)
    for path, made in ahead.items() if given.kernels else ():
        if time.monotonic() - began > given.limit_s:
            continue
        row = {"name": path.stem}
        try:
            steps = arms(*made, False).steps.items()
            row |= {f"{name}_kernels": kernels(step) for name, step in steps}
        except Exception as error:  # noqa: BLE001 - the other files count
            row["error"] = f"{type(error).__name__}: {error}"[:500]
        written(row)


if __name__ == "__main__":
    main()
