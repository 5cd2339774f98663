"""Exports of a drop-in: do their own tests pass, and how long does the first call take with and without a bundle.

    python -m tests.benchmarks.exports --device cuda --backend triton cuda --out rows.jsonl

The drop-in has the default plan, without a search. A row per export: what its tests printed last, seconds. A row per first call: seconds
in a new process with empty caches of compilers, from the construction of the module to the end of its first call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dvk.errors import DvkError
from dvk.pipelines.export import ExportRequest, export
from tests.pipelines.proven_runs import NESTED, NORM, proven_run

BUNDLES = {"cpp": "native", "cuda": "sm_90"}
FIRST = """
import sys, time, torch, best
made = torch.randn(8, device=sys.argv[1]) * 2
began = time.perf_counter()
model = best.ModelNew(*best.get_init_inputs()).to(sys.argv[1])
given = [x.to(sys.argv[1]) for x in best.get_inputs()]
def call():
    began = time.perf_counter()
    with torch.no_grad():
        model(*given)
    made.sum().item()
    return round(time.perf_counter() - began, 4)
first = call()
print(first, call(), model.dvk_calls)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", nargs="+", default=["cpp"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()

    def say(row: dict[str, Any]) -> None:
        print(json.dumps(row), flush=True)
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")

    with tempfile.TemporaryDirectory() as place:
        for backend in given.backend:
            _backend(Path(place), backend, given.device, say)


def _backend(place: Path, backend: Any, device: str, say: Any) -> None:
    run = proven_run(place / f"run-{backend}", NESTED, backend=backend, device=device)
    norm = proven_run(place / f"norm-{backend}", NORM, backend=backend, device=device)
    bundles = {"plain": (), **({"bundle": (BUNDLES[backend],)} if backend in BUNDLES else {})}
    for name, bundle in bundles.items():
        target = place / f"{name}-{backend}"
        export(ExportRequest(run=run, target=target, to="file", bundle=bundle))
        for caches in ("empty", "filled"):
            say(
                {"backend": backend, "first call": name, "caches": caches}
                | _first(target, device, place / f"cache-{name}-{backend}")
            )
    forms = [("python", run, {}), ("hf", run, {}), ("vllm", norm, {"op": "rms_norm(epsilon=1e-6)"})]
    for form, source, more in forms:
        target = place / f"{form}-{backend}"
        row: dict[str, Any] = {"backend": backend, "export": form}
        try:
            request = ExportRequest(run=source, target=target, to=form, **more)
            row["files"] = len(export(request)["files"])
            row |= _tests(target)
        except DvkError as error:
            row["error"] = str(error)
        say(row)


def _tests(package: Path) -> dict[str, Any]:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"],
        cwd=package,
        env={**os.environ, "PYTHONPATH": f"{package}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.strip().splitlines() or [done.stderr[-300:]]
    told = [line for line in lines if line.startswith(("E ", "FAILED", "ERROR"))][:6]
    seconds = round(time.perf_counter() - began, 1)
    return {"rc": done.returncode, "tests": lines[-1], "failures": told, "s": seconds}


def _first(folder: Path, device: str, cache: Path) -> dict[str, Any]:
    places = {"DVK_CACHE": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIRST, device],
        cwd=folder,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return {"error": done.stderr[-500:]}
    first, second, calls = done.stdout.split(maxsplit=2)
    return {"first_s": float(first), "second_s": float(second), "calls": calls.strip()}


if __name__ == "__main__":
    main()
