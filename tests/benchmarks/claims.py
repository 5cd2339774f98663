"""Rates of the judge's false and missed claims.

Judges pairs of known truth at the claim tier and counts claims: `same` candidates are the reference
under another name (every claim is false), `3%` ones leave out one of every thirty-three steps of work.

    python -m tests.benchmarks.claims --count 200                 # both truths, alternating
    python -m tests.benchmarks.claims --count 40 --device cuda --truth same
    python -m tests.benchmarks.claims --count 200 --groups 32     # 32 judges, each on separate cores

One JSON line a claim, then a summary. Nothing else should run.
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

from dvk import tasks
from dvk.config import Config
from dvk.harness import JudgeQueue, JudgeSpec
from dvk.records import Candidate

SOURCE = '''"""A chain whose length is the work."""
import torch
import torch.nn as nn

STEPS = {steps}

class {name}(nn.Module):
    def forward(self, x):
        held = x
        for _ in range(STEPS):
            held = torch.sin(x)
        return held

def get_inputs():
    return [torch.randn({rows}, 1024)]
'''
"""Every step computes the same, so any number of them is a correct answer and costs its share of the time."""
STEPS = 33


def judge(first: int, count: int, device: str, truth: str, workers: int) -> None:
    """Claims number `first` to `first + count`, printed as they come."""
    rows = 4096 if device == "cuda" else 96
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.py"
        path.write_text(SOURCE.format(steps=STEPS, name="Model", rows=rows))
        task = tasks.load(str(path), device=device)  # type: ignore[arg-type]  # argparse's choices
        jobs, truths = [], []
        for number in range(first, first + count):
            kind = truth if truth != "both" else ("same", "3%")[number % 2]
            source = SOURCE.format(
                steps=STEPS if kind == "same" else STEPS - 1, name="ModelNew", rows=rows
            )
            jobs.append(
                (
                    task,
                    Candidate(
                        source=f"{source}\n# {number}\n",
                        backend="cpp" if device == "cpu" else "triton",
                    ),
                )
            )
            truths.append(kind)
        for position, verdict in JudgeQueue[int](workers, Config()).map(
            jobs, JudgeSpec(tier="claim")
        ):
            claim = verdict.timing.claim if verdict.timing else None
            print(
                json.dumps(
                    {
                        "number": first + position,
                        "truth": truths[position],
                        "status": verdict.status.value,
                        "error": verdict.error,
                        "holds": claim and claim.holds,
                        "speedup": claim and claim.speedup.value,
                        "lo": claim and claim.speedup.lo,
                        "hi": claim and claim.speedup.hi,
                        "control": claim and claim.control.value,
                        "margin": claim and claim.margin,
                        "processes": claim and len(claim.processes),
                        "why": claim and claim.why,
                        "seconds": round(verdict.seconds, 1),
                    }
                ),
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--truth", choices=("same", "3%", "both"), default="both")
    parser.add_argument(
        "--groups",
        type=int,
        default=0,
        help="judges side by side, each pinned to two separate cores",
    )
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    if not asked.groups:
        judge(asked.first, asked.count, asked.device, asked.truth, asked.workers)
        return
    began = time.monotonic()
    cores = sorted(os.sched_getaffinity(0))
    running = []
    for group in range(asked.groups):
        first, end = (asked.count * g // asked.groups for g in (group, group + 1))
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.claims",
            "--first",
            str(first),
            "--count",
            str(end - first),
            "--device",
            asked.device,
            "--truth",
            asked.truth,
        ]
        mine = ",".join(map(str, cores[2 * group : 2 * group + 2]))
        running.append(
            subprocess.Popen(["taskset", "-c", mine, *command], stdout=subprocess.PIPE, text=True)
        )
    rows = []
    for process in running:
        out, _ = process.communicate()
        print(out, end="")
        rows += [json.loads(line) for line in out.splitlines()]
    for kind in ("same", "3%"):
        claims = [r for r in rows if r["truth"] == kind and r["holds"] is not None]
        held = sum(r["holds"] for r in claims)
        widths = sorted(r["margin"] for r in claims)
        median = f", median margin {widths[len(widths) // 2]:.4f}" if widths else ""
        print(
            f"{kind}: {len(claims)} claims of {sum(r['truth'] == kind for r in rows)}, {held} say faster{median}"
        )
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
