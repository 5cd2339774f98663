"""A table of measured plans with a known truth: looped softmaxes gain a tenth where rows are long, nothing else does anything."""

from __future__ import annotations

import random
from typing import Any

from dvk.records import Interval, Task, Timing, Verdict
from dvk.records.measured import MeasuredPlan, MeasuredTask
from dvk.records.skill_block import GraphFacts
from dvk.records.verdict import Status

MACHINE = "NVIDIA H100, torch 2.11"
GAIN = 1.10
LONG = 1 << 14


def table(count: int = 120, noise: float = 0.01, seed: int = 0) -> list[MeasuredTask]:
    """Tasks with facts; every second is a softmax, every second of them with long rows."""
    rng = random.Random(seed)
    return [_row(number, rng, noise) for number in range(count)]


def _row(number: int, rng: random.Random, noise: float) -> MeasuredTask:
    does = "softmax" if number % 2 else "pointwise"
    length = (1 << 16 if number % 4 == 1 else 1 << 10) if does == "softmax" else 1
    kernel: dict[str, str | int] = {
        "does": does,
        "family": "row" if does == "softmax" else "pointwise",
        "row_length": length,
        "rows": 64,
        "elements": 64 * length,
    }
    facts = GraphFacts(
        words={
            "backend": ("triton",),
            "device": ("cuda",),
            "machine": ("nvidia", "h100"),
            "regime": ("device",),
            "has": ("softmax",) if does == "softmax" else ("add",),
            "dtype": ("float32",),
            "applies": ("fuse_rowwise", "own_matmul"),
        },
        numbers={"kernels": 1, "calls": 0, "bytes": 1000},
        kernels={"k0": kernel},
    )
    base = rng.uniform(1.2, 2.0)

    def plan(kind: str, recipes: tuple[str, ...], schedule: dict[str, Any], gain: float) -> Any:
        speed = base * gain * 2.718281828 ** rng.gauss(0, noise)
        return MeasuredPlan(
            kind=kind, recipes=recipes, schedule={"k0": schedule}, verdict=ok(speed)
        )

    usual = {"kind": "persistent", "warps": 4}
    looped = {"kind": "looped", "rblock": 2048, "warps": 4}
    pays = does == "softmax" and length > LONG
    plans = (
        plan("default", ("fuse_rowwise",), usual, 1.0),
        plan("structure", ("fuse_rowwise", "own_matmul"), usual, 1.0),
        plan("algorithm", ("fuse_rowwise",), looped, GAIN if pays else 1 / GAIN),
        plan("algorithm", ("fuse_rowwise",), {**usual, "warps": 8}, 1.0),
    )
    task = Task(
        id=f"{number:016x}",
        name=f"task{number}",
        source="class Model: pass",
        entry="Model",
        kind="module",
        device="cuda",
    )
    return MeasuredTask(task=task, backend="triton", facts=facts, plans=plans)


def ok(speed: float, machine: str = MACHINE) -> Verdict:
    """A verdict with a speedup."""
    timing = Timing(
        candidate_ms=1.0,
        reference_ms=speed,
        speedup=Interval(value=speed, lo=speed * 0.99, hi=speed * 1.01),
        num_pairs=30,
        seconds=0.1,
        regime="device",
    )
    return Verdict(status=Status.OK, tier="search", stage="done", timing=timing, machine=machine)
