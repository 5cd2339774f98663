"""How production's layers are timed by the device: the composer's kernels beside the library, torch.compile and the roofline.

A family is a function that lists rows: a layer on one shape of a public configuration. `main` prints a row of JSON as it is measured:
microseconds of the best library call or calls (`library_us`), of the composer's kernels with the best schedule of each (`dvk_us`), of
torch.compile max-autotune (`compile_us`, with `--compile`) and of the roofline. L2 is flushed before each call.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from dvk.composer import applicable
from dvk.composer.capture.export import trace_module
from dvk.composer.codegen import triton as renderer
from dvk.composer.compose import fuse
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.triton import TritonSchedule
from dvk.target import of_machine
from tests.composer.programs import TASK, Function
from tests.composer.triton_programs import Program, load

FLOPS = {"bf16": 9.9e14, "byte": 1.98e15}
"""Peaks of an H100 or H200, dense."""
REPEATS = 8
FLUSHED = 192 << 20
Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One shape of a family."""

    family: str
    name: str
    forward: Callable[..., Any]
    args: Callable[[], Tensors]
    flops: float = 0.0
    peak: str = "bf16"
    read: float = 0.0
    """Bytes that must be read; 0 for all arguments."""
    library: Callable[..., Any] | None = None
    """The library's best on the same arguments; None for `forward` itself, run eagerly."""
    prepared: Callable[[Tensors], tuple[Callable[..., Any], Tensors]] | None = None
    """In place of `library`: makes the library's best and its own arguments, such as weights in its layout."""
    waits: bool = False
    """The library's calls wait for the device: their time includes the host's."""
    beside: Mapping[str, Callable[[Tensors], tuple[Callable[..., Any], Tensors]]] = field(
        default_factory=dict
    )
    """Further calls of the library, by the column that holds their time: as `prepared`."""


class Composed(Program):
    """The kernels of a function under all recipes that apply."""

    def __init__(self, forward: Callable[..., Any], args: Tensors, device: str):
        self.module, self.args, self.device = Function(forward), args, device
        self.names = [f"x{n}" for n in range(len(args))]
        captured = trace_module(self.module, args, self.names)
        names = tuple(applicable(captured.graph, device, "triton", but=("cuda_graph",)))
        made = fuse(TASK.model_copy(update={"device": device}), captured, names)
        self.graph, self.prims, self.part = made.graph, made.prims, made.part
        self.kernels = made.kernels

    def tuned(self, most: int, until: float) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The function under the best schedules, each kernel's chosen by the time of the whole, and all times."""
        chosen: dict[str, TritonSchedule] = {}
        target = of_machine(self.device)
        options = {k.name: renderer.schedules(k, target)[:most] for k in self.kernels.values()}
        tried: dict[str, Any] = {}

        def under(name: str, one: TritonSchedule | None) -> Callable[..., Any] | None:
            def choose(kernel: Kernel) -> TritonSchedule:
                known = one if kernel.name == name else chosen.get(kernel.name)
                return known or options[kernel.name][0]

            try:
                made = load(self.text(choose))
                made.run(self.module, *self.args)
            except Exception as error:  # noqa: BLE001 - one row more or less
                print(f"  {name} {one}: {type(error).__name__}: {str(error)[-300:]}", flush=True)
                return None
            return lambda *args: made.run(self.module, *args)

        best = under("", None)
        for name, some in options.items():
            if time.monotonic() > until:
                break
            with ThreadPoolExecutor(8) as pool:
                made = list(pool.map(under, [name] * len(some), some))
            torch.cuda.synchronize()
            times = [
                (device_us(run, self.args), n) for n, run in enumerate(made) if run is not None
            ]
            if times:
                chosen[name], best = some[min(times)[1]], made[min(times)[1]]
                tried[name] = {_words(some[n]): round(us, 1) for us, n in sorted(times)}
        assert best is not None, "no schedule ran"
        return best, tried


def _words(schedule: TritonSchedule) -> str:
    return " ".join(str(v) for v in schedule.printed().values())


def device_us(run: Callable[..., Any], args: Tensors) -> float:
    """Microseconds of one call on the device, L2 flushed before it: the difference of two CUDA graphs."""
    room = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")
    run(*args)
    torch.cuda.synchronize()
    graphs = []
    for work in (False, True):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(REPEATS):
                room.zero_()
                if work:
                    run(*args)
        graphs.append(graph)
    best = [float("inf"), float("inf")]
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(4):
        for n, graph in enumerate(graphs):
            start.record()
            graph.replay()
            stop.record()
            torch.cuda.synchronize()
            best[n] = min(best[n], start.elapsed_time(stop))
    return (best[1] - best[0]) * 1e3 / REPEATS


def events_us(run: Callable[..., Any], args: Tensors) -> float:
    """Microseconds of one call with the host's waits: for functions that synchronise."""
    run(*args)
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    best = float("inf")
    for _ in range(5):
        start.record()
        run(*args)
        stop.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(stop) * 1e3)
    return best


def measured(row: Row, compiles: bool, most: int, until: float) -> dict[str, Any]:
    """One row's figures."""
    torch.manual_seed(0)
    args = row.args()
    want = row.forward(*args)
    moved = [*([] if row.read else args), *(want if isinstance(want, tuple) else (want,))]
    num_bytes = row.read + sum(t.numel() * t.element_size() for t in moved)
    gb_per_s = of_machine("cuda").gpu.gb_per_s
    roof = max(row.flops / FLOPS[row.peak] * 1e6, num_bytes / gb_per_s / 1e3)
    found: dict[str, Any] = {"family": row.family, "shape": row.name, "roofline_us": round(roof, 1)}
    try:
        library, given = row.prepared(args) if row.prepared else (row.library or row.forward, args)
        found["library_us"] = round((events_us if row.waits else device_us)(library, given), 1)
        del library, given
    except Exception as failed:  # noqa: BLE001 - the composer's figure counts without the library's
        print(f"  library: {type(failed).__name__}: {str(failed)[-300:]}", flush=True)
    for column, make in row.beside.items():
        try:
            found[column] = round(device_us(*make(args)), 1)
        except Exception as failed:  # noqa: BLE001 - not every version has the call
            print(f"  {column}: {type(failed).__name__}: {str(failed)[-300:]}", flush=True)
    run, found["schedules"] = Composed(row.forward, args, "cuda").tuned(most, until)
    found["dvk_us"] = round(device_us(run, args), 1)
    found["error"] = error(run(*args), want)
    if "library_us" in found:
        found["times_library"] = round(found["library_us"] / found["dvk_us"], 3)
    found["of_roofline"] = round(roof / found["dvk_us"], 3)
    if compiles and not row.waits:
        torch._dynamo.reset()
        made = torch.compile(row.forward, mode="max-autotune-no-cudagraphs", dynamic=False)
        found["compile_us"] = round(device_us(made, args), 1)
    return found


def error(got: Any, want: Any) -> float:
    """The largest root mean square error of a result, relative to the result's own."""
    pairs = zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True)
    return max(
        float((a.double() - b.double()).pow(2).mean().sqrt() / b.double().pow(2).mean().sqrt())
        for a, b in pairs
    )


def main(doc: str | None, families: Mapping[str, Callable[[], Iterator[Row]]]) -> None:
    """Measure the families that the command line names."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", default=",".join(families))
    parser.add_argument("--rows", type=int, default=99, help="shapes of each family")
    parser.add_argument("--schedules", type=int, default=8, help="schedules tried of each kernel")
    parser.add_argument("--compile", action="store_true", help="time torch.compile, too")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no row after that")
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    for family in asked.families.split(","):
        for number, row in enumerate(families[family]()):
            if number >= asked.rows or time.monotonic() > until:
                break
            try:
                print(json.dumps(measured(row, asked.compile, asked.schedules, until)), flush=True)
            except Exception as error:  # noqa: BLE001 - one row's failure is reported
                print(
                    f"{family} {row.name}: {type(error).__name__}: {str(error)[-400:]}", flush=True
                )
            torch.cuda.empty_cache()
