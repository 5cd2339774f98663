"""Rooflines: this machine's speed, as `dvk doctor` measured it, and times that no kernel can undercut. Imports no torch.

The floor is a roofline: the bytes that must move at the highest measured bandwidth, FLOPs at the highest rate. It is shown next to a time.
`impossible` uses it and must never reject an honest kernel: only bytes that are certainly needed count, less those that may be in caches
that a flush does not reach; ceilings measured on a busy day are too low, so the best of all days is kept (`better`) and a CPU, whose memory
others share, gets four times the slack; and a reference that beats the floor proves the floor wrong.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError

from dvk import machine
from dvk.graph_costs import flops
from dvk.records import Device, Graph, Record, Task

SLACK: dict[Device, float] = {"cuda": 0.9, "cpu": 0.25}
"""Share of the floor below which a time is impossible. Bandwidths of one kind of GPU differ by 4 %; of a CPU, by its other load."""
RATES = {"float16": "fp16", "bfloat16": "bf16"}
"""The key of `Ceilings.gflops` for a result's type; others are fp32, or tf32 if the task says so."""
SPARED_CACHES = 2.0
"""Allowance of bytes in sizes of the flushed cache: reads that hit and writes that stay there."""


class Ceilings(Record):
    """Measurements of one device by `dvk doctor`."""

    device: Device = Field(description="`cpu` (all cores) or `cuda` (one GPU).")
    copy_gbps: float = Field(
        gt=0, description="Bytes read plus bytes written a second by a large copy, in 1e9."
    )
    read_gbps: float | None = Field(
        None, gt=0, description="Bytes read a second by a large reduction, in 1e9."
    )
    write_gbps: float | None = Field(
        None, gt=0, description="Bytes written a second by a large fill, in 1e9."
    )
    gflops: dict[str, float] = Field(
        default_factory=dict,
        description="1e9 floating-point operations a second of a large matmul, by precision: fp32, tf32, bf16, fp16.",
    )
    launch_us: float | None = Field(
        None, gt=0, description="Microseconds a small operator costs when many follow each other."
    )
    sync_us: float | None = Field(
        None,
        gt=0,
        description="Microseconds from the call of a small operator to its end seen by the host.",
    )
    at: str = Field("", description="When: ISO time, UTC.")

    @property
    def memory_gbps(self) -> float:
        """Return the highest measured bandwidth; on an H100 a fill reaches 7 % more than a copy."""
        return max(self.copy_gbps, self.read_gbps or 0.0, self.write_gbps or 0.0)


def load(device: Device) -> Ceilings | None:
    """Return this machine's measurements; None without any, or if an older dvk measured differently."""
    facts: dict[str, Any] = {
        name: value
        for name, value in machine.recall(device).items()
        if name in Ceilings.model_fields
    }
    try:
        return Ceilings.model_validate({**facts, "device": device})
    except ValidationError:
        return None


def better(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the more favourable of two measurements, field by field; `at` and unshared fields are taken as they are.

    Args:
        one: facts from `machine.recall`; `other` wins if they are equal.
    """
    best = {**one, **other}
    for name in ("copy_gbps", "read_gbps", "write_gbps"):
        if isinstance(one.get(name), (int, float)) and name in other:
            best[name] = max(one[name], other[name])
    for name in ("launch_us", "sync_us"):
        if isinstance(one.get(name), (int, float)) and name in other:
            best[name] = min(one[name], other[name])
    if isinstance(one.get("gflops"), dict) and isinstance(other.get("gflops"), dict):
        rates = {**one["gflops"], **other["gflops"]}
        best["gflops"] = {
            name: max(rate, one["gflops"].get(name, 0.0)) for name, rate in rates.items()
        }
    return best


def floor_ms(
    num_bytes: float, ceilings: Ceilings, *, flops: float = 0.0, precision: str = "fp32"
) -> float:
    """Return the least milliseconds of a call: memory or arithmetic, whichever binds.

    Args:
        num_bytes: inputs and weights read and outputs written, once each.
        ceilings: this machine's.
        flops: floating-point operations, if known; ignored if `precision` was not measured.
        precision: precision of the arithmetic.
    """
    rate = ceilings.gflops.get(precision)
    return max(num_bytes / ceilings.memory_gbps, flops / rate if rate else 0.0) / 1e6


def flop_ms(graph: Graph | None, task: Task, ceilings: Ceilings | None) -> float | None:
    """Return milliseconds of a call's matmuls at this machine's rate; None if the rate is unknown or there are no matmuls.

    A candidate that computes less than the reference may beat it: it is shown, and no verdict depends on it.
    """
    if graph is None or ceilings is None:
        return None
    shapes = {node.name: node.shape for node in graph.nodes}
    total = 0.0
    for node in graph.nodes:
        rate = ceilings.gflops.get(
            RATES.get(node.dtype or "", "tf32" if task.precision == "tf32" else "fp32")
        )
        if rate is None:
            rate = ceilings.gflops.get("fp32")
        count = flops(node, shapes)
        if count and rate:
            total += count / rate / 1e6
    return total or None


def impossible(
    candidate_ms: float,
    reference_ms: float,
    needed_bytes: float,
    cache_bytes: float,
    ceilings: Ceilings,
) -> str | None:
    """Return why no kernel can have done the work in `candidate_ms`; None if one may have.

    Args:
        candidate_ms: median time of a call with flushed caches.
        reference_ms: the same of the trusted reference.
        needed_bytes: bytes that every right answer must read or write (`roofline_bytes.needed_bytes`), not all bytes.
        cache_bytes: size of the cache that is flushed before a call.
        ceilings: this machine's.
    """
    moved = needed_bytes - SPARED_CACHES * cache_bytes
    if moved <= 0:
        return None
    floor = floor_ms(moved, ceilings)
    if candidate_ms >= SLACK[ceilings.device] * floor or reference_ms < floor:
        return None
    return (
        f"it took {candidate_ms:.4g} ms, but the {moved / 1e6:.0f} MB that must move between memory and processor take "
        f"at least {floor:.4g} ms at {ceilings.memory_gbps:.0f} GB/s"
    )
