"""Matmuls under the first schedules for this GPU's facts and for the default target: median times, interleaved.

    python -m tests.benchmarks.targets OUT.jsonl

A line a matmul: its sizes, whether the two lists differ, the best time in ms over the first few of each, and of the first alone.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dvk.composer import Plan, compose, fuse
from dvk.composer.codegen.base import codegen
from dvk.composer.ir.schedules.base import Schedule
from dvk.target import of_machine
from tests.composer.programs import TASK, capture
from tests.composer.triton_programs import load

SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, w):
        return torch.matmul(x, w)
"""
SIZES = (
    (4096, 4096, 4096),
    (128, 8192, 8192),
    (16, 4096, 14336),
    (2048, 512, 2048),
    (64, 65536, 64),
)
DTYPES = (torch.bfloat16, torch.float32)
FIRST = 4
"""Schedules of each list that are timed."""
ROUNDS = 15


def seconds(call: Callable[[], Any]) -> float:
    """Device time of ten calls, a call's share."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(10):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e4


def calls(x: torch.Tensor, w: torch.Tensor, options: list[Schedule]) -> list[Callable[[], Any]]:
    task = TASK.model_copy(update={"device": "cuda", "source": SOURCE})
    captured = capture(torch.matmul, x, w)
    (kernel,) = fuse(task, captured, ("own_matmul",)).ordered
    made = []
    for schedule in options:
        plan = Plan(("own_matmul",), {kernel.name: schedule})
        module: Any = load(compose(task, captured, plan, "triton").source)
        made.append(partial(module.ModelNew().cuda(), x, w))
    return made


def row(m: int, k: int, n: int, dtype: torch.dtype) -> dict[str, Any]:
    x, w = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
    task = TASK.model_copy(update={"device": "cuda"})
    (kernel,) = fuse(task, capture(torch.matmul, x, w), ("own_matmul",)).ordered
    writer = codegen("triton")
    lists = {
        "default": [*writer.schedules(kernel)],
        "machine": [*writer.schedules(kernel, of_machine("cuda"))],
    }
    found: dict[str, Any] = {
        "sizes": [m, k, n],
        "dtype": str(dtype),
        "same": lists["default"] == lists["machine"],
        "same_first": lists["default"][0] == lists["machine"][0],
    }
    if torch.cuda.is_available() and not found["same"]:
        options = list(dict.fromkeys([*lists["default"][:FIRST], *lists["machine"][:FIRST]]))
        made = calls(x.cuda(), w.cuda(), options)
        for call in made:
            call()
        times: list[list[float]] = [[] for _ in made]
        for _ in range(ROUNDS):
            for taken, call in zip(times, made):
                taken.append(seconds(call))
        ms = {o: 1e3 * statistics.median(taken) for o, taken in zip(options, times)}
        for name, listed in lists.items():
            found[f"{name}_first_ms"] = round(ms[listed[0]], 4)
            found[f"{name}_best_ms"] = round(min(ms[o] for o in listed[:FIRST]), 4)
    return found


def main(out: Path) -> None:
    with out.open("w") as file:
        print(json.dumps({"gpu": str(of_machine("cuda").gpu)}), file=file, flush=True)
        for (m, k, n), dtype in itertools.product(SIZES, DTYPES):
            print(json.dumps(row(m, k, n, dtype)), file=file, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
