"""Time a run's best kernels, eager, torch.compile and a CUDA graph of eager on GPUs, and list what each launches.

    python -m tests.benchmarks.profile_arms data/tasks/large/development runs/eval-... --out arms.jsonl

One line a task: milliseconds of each arm (median of calls by CUDA events) and its kernels (name, calls, microseconds).
Each task runs in its own process; processes of one GPU take turns at timing.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

CALLS = 15
TOP = 14


def best_sources(run: Path) -> dict[str, dict[str, Any]]:
    """Fastest correct candidate of each task: name → its record, with `over`, its speedup over eager in that run."""
    best: dict[str, dict[str, Any]] = {}
    for line in (run / "episodes" / "eval.jsonl").open():
        episode = json.loads(line)
        for trace in episode["traces"]:
            for turn in trace["turns"]:
                verdict, candidate = turn["verdict"], turn["candidate"]
                timing = verdict and verdict.get("timing")
                if not timing or verdict["status"] != "ok" or not candidate:
                    continue
                over = timing["speedup"]["value"]
                name = (
                    episode["task"] if isinstance(episode["task"], str) else episode["task"]["name"]
                )
                if over > best.get(name, {"over": 0.0})["over"]:
                    best[name] = {"over": over, **{k: candidate[k] for k in ("source", "title")}}
    return best


@contextmanager
def exclusive(path: str):
    """Hold the GPU's lock."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measure(call: Callable[[], Any], lock: str) -> tuple[float, float, list[list[Any]]]:
    """Medians of a call's milliseconds and of the host's share, and its kernels: [name, calls, microseconds a call of the module]."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    with exclusive(lock):
        times, hosts = [], []
        for _ in range(CALLS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began = time.perf_counter()
            start.record()
            call()
            end.record()
            hosts.append((time.perf_counter() - began) * 1e3)
            end.synchronize()
            times.append(start.elapsed_time(end))
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
            for _ in range(3):
                call()
            torch.cuda.synchronize()
    rows = [
        [e.key[:90], e.count / 3, round(e.self_device_time_total / 3, 1)]
        for e in profiled.key_averages()
        if e.self_device_time_total and str(e.device_type).endswith("CUDA")
    ]
    rows.sort(key=lambda row: -row[2])
    return sorted(times)[CALLS // 2], sorted(hosts)[CALLS // 2], rows[:TOP]


def graphed(model: Any, inputs: list[Any]) -> Callable[[], Any]:
    """Replay `model(*inputs)` as a CUDA graph."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(*inputs)
    return graph.replay


def composed(text: str, recipes: list[str]) -> str:
    """The drop-in of a task's text with the recipes that always save work, and some more."""
    from dvk.composer import CannotCompose, Plan, applicable, fuse, write
    from dvk.composer.capture.batch import capture_many
    from dvk.composer.codegen.base import codegen
    from dvk.composer.plan_space import MEASURED
    from dvk.records import Task, content_hash

    task = Task(
        id=content_hash(text),
        name="t",
        source=text,
        entry="Model",
        kind="module",
        device="cuda",
        precision="tf32",
    )
    ((_, captured),) = capture_many([task])
    if isinstance(captured, CannotCompose):
        raise captured
    possible = applicable(captured.graph, "cuda", "triton")
    if missing := [r for r in recipes if r not in possible and r != "own"]:
        raise CannotCompose(f"without {missing}")
    own = [r for r in possible if r.startswith("own_")] if "own" in recipes else []
    names = (*(r for r in possible if r not in MEASURED), *(r for r in recipes if r != "own"), *own)
    composition = fuse(task, captured, names)
    first = {k.name: codegen("triton").schedules(k)[0] for k in composition.ordered}
    return write(task, captured, composition, Plan(names, first), "triton").source


def one(
    task: str, source: str, modes: list[str], lock: str, plans: list[list[str]]
) -> dict[str, Any]:
    """All arms of one task."""
    import torch

    def read(text: str, name: str) -> dict[str, Any]:
        path = Path(tempfile.mkdtemp()) / f"{name}.py"
        path.write_text(text)
        space: dict[str, Any] = {"__name__": name, "__file__": str(path)}
        exec(compile(text, str(path), "exec"), space)
        return space

    original = read(Path(task).read_text(), "original")
    torch.manual_seed(0)
    with torch.device("cuda"):
        inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in original["get_inputs"]()]
    init = original["get_init_inputs"]()
    row: dict[str, Any] = {
        "task": Path(task).stem,
        "ms": {},
        "host_ms": {},
        "kernels": {},
        "errors": {},
    }
    model = original["Model"](*init).cuda()
    arms: dict[str, Callable[[], Callable[[], Any]]] = {
        "eager": lambda: lambda: model(*inputs),
        "graph": lambda: graphed(model, inputs),
    }
    if source:
        ours = read(Path(source).read_text(), "ours")["ModelNew"](*init).cuda()
        arms["own"] = lambda: lambda: ours(*inputs)
    for plan in plans:

        def planned(plan: list[str] = plan) -> Callable[[], Any]:
            made = read(composed(Path(task).read_text(), plan), "plan" + "_".join(plan))
            ours = made["ModelNew"](*init).cuda()
            ours.load_state_dict(model.state_dict())
            ours.train(model.training)
            os.environ["DVK_STRICT"] = "1"
            expected, got = model(*inputs), ours(*inputs)
            for a, b in zip(
                torch.utils._pytree.tree_leaves(expected), torch.utils._pytree.tree_leaves(got)
            ):
                if isinstance(a, torch.Tensor):
                    worst = ((a.double() - b.double()).abs().max() / a.double().abs().mean()).item()
                    row.setdefault("off", {})["+".join(plan)] = float(f"{worst:.2g}")
            return lambda: ours(*inputs)

        arms["+".join(plan) or "fused"] = planned
    for mode in modes if modes != [""] else []:

        def compiled(mode: str = mode) -> Callable[[], Any]:
            torch._dynamo.reset()
            fast = torch.compile(model, mode=None if mode == "default" else mode)
            return lambda: fast(*inputs)

        arms[f"compile {mode}"] = compiled
    with torch.no_grad():
        for name, arm in arms.items():
            start = time.monotonic()
            try:
                row["ms"][name], row["host_ms"][name], row["kernels"][name] = measure(arm(), lock)
            except Exception as error:  # noqa: BLE001 - an arm that fails is a row of the table
                row["errors"][name] = f"{type(error).__name__}: {error}"[:300]
            row.setdefault("seconds", {})[name] = round(time.monotonic() - start, 1)
            torch.cuda.empty_cache()
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", type=Path)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path("arms.jsonl"))
    parser.add_argument("--modes", default="default")
    parser.add_argument(
        "--plans",
        default="",
        help="recipes besides the usual: a+b,c,fused; own stands for all own_ ones",
    )
    parser.add_argument("--only", default="", help="names of tasks, with commas")
    parser.add_argument("--each", type=int, default=2, help="processes a GPU")
    parser.add_argument("--timeout", type=float, default=240)
    parser.add_argument("--one", nargs=2)
    args = parser.parse_args()
    if args.one:
        plans = [p.split("+") if p != "fused" else [] for p in args.plans.split(",") if p]
        print(
            json.dumps(one(str(args.tasks), args.one[0], args.modes.split(","), args.one[1], plans))
        )
        return
    import torch

    best = best_sources(args.run) if args.run else {}
    places: Queue[int] = Queue()
    for _ in range(args.each):
        for gpu in range(torch.cuda.device_count()):
            places.put(gpu)

    def row(path: Path) -> dict[str, Any]:
        gpu = places.get()
        found = best.get(path.stem)
        source = ""
        if found:
            source = str(Path(tempfile.mkdtemp()) / f"{path.stem}_own.py")
            Path(source).write_text(found["source"])
        command = [sys.executable, "-m", "tests.benchmarks.profile_arms", str(path)]
        command += [
            "--plans",
            args.plans,
            "--modes",
            args.modes,
            "--one",
            source,
            f"/tmp/profile-gpu{gpu}.lock",
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=args.timeout,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)},
            )
            result = json.loads(done.stdout.splitlines()[-1])
        except Exception as error:  # noqa: BLE001 - as above
            text = done.stderr[-300:] if "done" in locals() else ""
            result = {"task": path.stem, "errors": {"all": f"{error!r} {text}"}, "ms": {}}
        finally:
            places.put(gpu)
        if found:
            result |= {"judged": round(found["over"], 3), "title": found["title"]}
        return result

    with ThreadPoolExecutor(places.qsize()) as pool, args.out.open("w") as file:
        only = set(args.only.split(",")) - {""}
        files = [f for f in sorted(args.tasks.rglob("*.py")) if not only or f.stem in only]
        for result in pool.map(row, files):
            file.write(json.dumps(result) + "\n")
            file.flush()
            show = {k: round(v, 3) for k, v in result["ms"].items()}
            print(
                result["task"],
                show,
                result.get("title", ""),
                result.get("errors") or "",
                flush=True,
            )


if __name__ == "__main__":
    main()
