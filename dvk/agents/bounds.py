"""What bounds a task's time: bytes and arithmetic against the device's peaks, where PyTorch's time goes, the line of PyTorch to beat.

Bytes and operations follow from the captured shapes, peaks are those that `dvk doctor` measured or else the device's data, and the
profile and the opponent are given by who has measured them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from dvk.config import Config
from dvk.graph_costs import least_bytes, operators
from dvk.harness.profiling.record import Profile
from dvk.harness.timing import roofline
from dvk.records import Graph, Record, Task, Timing, Turn, show_ratio
from dvk.target import Target
from dvk.tasks import sizes

SHOWN = 8
"""Operators listed at most."""
SMALL = 0.02
"""Share of the time below which operators are only counted."""


class OperatorCost(Record):
    """One operator of the reference, or one of its kernels: over all its runs in a call."""

    name: str = Field(description="The operator's or the kernel's name.")
    count: float = Field(1.0, description="Runs a call.")
    ms: float | None = Field(None, description="Milliseconds a call; null if not measured.")
    share: float | None = Field(None, description="Share of the call's computing time.")
    num_bytes: int | None = Field(None, description="Bytes that it moves when it runs alone.")


class Opponent(Record):
    """The fastest way to run the reference with PyTorch alone, as far as measured."""

    name: str = Field(description="`eager PyTorch`, or the line.")
    ms: float = Field(description="Milliseconds a call.")
    speedup: float = Field(1.0, description="Over eager.")


class Bounds(Record):
    """See the module."""

    device: str = Field(
        description="The device's name and sizes; empty if it is another machine's."
    )
    memory_gbps: float | None = Field(None, description="Bandwidth in 1e9 bytes a second.")
    gflops: dict[str, float] = Field(
        default_factory=dict, description="Rate of matmuls by precision, 1e9 operations a second."
    )
    measured: bool = Field(False, description="Whether `dvk doctor` measured the peaks.")
    num_bytes: int | None = Field(
        None, description="Inputs and weights read once, results written once."
    )
    unfused_bytes: int | None = Field(None, description="The operators' bytes when run one by one.")
    flops: float = Field(0.0, description="Operations of the matmuls.")
    flop_ms: float | None = Field(None, description="Their time at the peak.")
    reference_ms: float | None = Field(None, description="A call of eager PyTorch.")
    operators: tuple[OperatorCost, ...] = Field((), description="The most expensive ones first.")
    opponent: Opponent | None = Field(None, description="The fastest line of PyTorch known.")

    @property
    def memory_ms(self) -> float | None:
        """Time to move the bytes once."""
        if self.num_bytes is None or not self.memory_gbps:
            return None
        return self.num_bytes / self.memory_gbps / 1e6

    @property
    def least_ms(self) -> float | None:
        """The roofline: memory or arithmetic, whichever takes longer; None if no peak is known."""
        return max((ms for ms in (self.memory_ms, self.flop_ms) if ms is not None), default=None)

    def profiled(self, profile: Profile) -> Bounds:
        """With the profile of a call of the reference."""
        costs = tuple(
            OperatorCost(name=k.name, count=k.count, ms=k.device_ms, share=k.share)
            for k in profile.kernels
        )
        return self.model_copy(update={"operators": costs, "reference_ms": profile.wall_ms})

    def judged(self, turns: Sequence[Turn]) -> Bounds:
        """With the opponent among judged turns: eager PyTorch, or the fastest of its lines."""
        timed = [
            (turn.candidate.line, turn.verdict.timing)
            for turn in turns
            if turn.candidate and turn.verdict and turn.verdict.timing
        ]
        if not timed:
            return self
        reference_ms = timed[0][1].reference_ms
        best = Opponent(name="eager PyTorch", ms=reference_ms)
        for line, timing in timed:
            if line and timing.speedup.value > best.speedup:
                best = Opponent(name=line, ms=timing.candidate_ms, speedup=timing.speedup.value)
        return self.model_copy(update={"reference_ms": reference_ms, "opponent": best})


def of(task: Task, graph: Graph | None, config: Config, target: Target) -> Bounds:
    """The bounds of a task as far as shapes and peaks give them; nothing is measured.

    Args:
        graph: the captured one; without it weights are not counted, and operators are not known.
        target: the device that candidates run on; ignored if the judge is on another machine.
    """
    elsewhere = bool(config.remote.judge or config.remote.engine)
    known = None if elsewhere else roofline.load(task.device)
    costs = operators(graph) if graph is not None else []
    moved = [cost.moved_bytes for cost in costs]
    ranked = sorted(costs, key=lambda cost: -(cost.moved_bytes or 0))
    gpu = task.device == "cuda"
    data_gbps = target.gpu.gb_per_s if gpu and not elsewhere else None
    return Bounds(
        device="" if elsewhere else _device(target, gpu),
        memory_gbps=known.memory_gbps if known is not None else data_gbps,
        gflops=known.gflops if known is not None else {},
        measured=known is not None,
        num_bytes=(least_bytes(graph) if graph is not None else None)
        or sizes.num_bytes(task)
        or None,
        unfused_bytes=sum(size or 0 for size in moved) if moved and None not in moved else None,
        flops=sum(cost.flops for cost in costs),
        flop_ms=roofline.flop_ms(graph, task, known),
        operators=tuple(
            OperatorCost(name=f"{cost.name} {cost.result}".strip(), num_bytes=cost.moved_bytes)
            for cost in ranked
            if cost.moved_bytes
        ),
    )


def _device(target: Target, gpu: bool) -> str:
    if not gpu:
        return (
            f"{target.cpu.name}, {target.cpu.cores} cores, vectors of {target.cpu.vector_bits} bits"
        )
    facts = target.gpu
    return (
        f"{facts.name}, {facts.sms} multiprocessors, {facts.shared_bytes_per_block >> 10} KiB of shared memory a block, "
        f"{facts.l2_bytes >> 20} MiB of L2"
    )


# ---------------------------------------------------------------- as text


def words(bounds: Bounds) -> str:
    """The bounds as a paragraph for a kernel's author, without the operators; empty if nothing is known."""
    lines = []
    peaks = [f"{bounds.memory_gbps:.0f} GB/s"] if bounds.memory_gbps else []
    peaks += [f"{rate / 1e3:.3g} TFLOP/s {name}" for name, rate in bounds.gflops.items()]
    if bounds.device:
        source = "measured" if bounds.measured else "by its data"
        lines.append(
            f"Device: {bounds.device}{f'; {source} ' + ', '.join(peaks) if peaks else ''}."
        )
    if bounds.num_bytes:
        text = f"A call moves at least {_size(bounds.num_bytes)}: inputs and weights read once, results written once"
        if bounds.unfused_bytes and bounds.unfused_bytes > bounds.num_bytes:
            text += f"; the operators one by one move {_size(bounds.unfused_bytes)}"
        text += f". Its matmuls are {bounds.flops / 1e9:.3g} GFLOP" if bounds.flops else ""
        lines.append(f"{text}.")
    if (least := bounds.least_ms) is not None:
        by = "arithmetic" if least == bounds.flop_ms else "memory"
        lines.append(f"Roofline: {ms_text(least)} a call, bound by {by}.")
    if bounds.reference_ms:
        times = f", {show_ratio(bounds.reference_ms / least)} the roofline" if least else ""
        lines.append(f"Eager PyTorch takes {ms_text(bounds.reference_ms)}{times}.")
    if (best := bounds.opponent) is not None and best.speedup > 1:
        lines.append(
            f"To beat: `{best.name}`, the fastest line of PyTorch here, {ms_text(best.ms)} a call, "
            f"{show_ratio(best.speedup)} eager."
        )
    return "\n".join(lines)


def profile_words(bounds: Bounds) -> str:
    """Where the reference's time goes, an operator a line; its largest operators by bytes if no time was measured."""
    costs = bounds.operators
    if not costs:
        return ""
    if costs[0].ms is None:
        shown = [f"{c.name} {_size(c.num_bytes or 0)}" for c in costs[:SHOWN]]
        return f"Bytes of the largest operators when they run alone: {'; '.join(shown)}."
    kept = [c for c in costs[:SHOWN] if (c.share or 0) >= SMALL] or list(costs[:1])
    lines = ["Where eager PyTorch's time goes, a call:"]
    for cost in kept:
        count = f" ×{cost.count:.3g}" if cost.count != 1 else ""
        lines.append(f"- {cost.name[:80]}{count}: {ms_text(cost.ms or 0)}, {cost.share or 0:.0%}")
    if left := costs[len(kept) :]:
        lines.append(f"- the other {len(left)}: {ms_text(sum(c.ms or 0 for c in left))}")
    return "\n".join(lines)


def gap(bounds: Bounds | None, timing: Timing) -> list[str]:
    """How far a timed candidate is from the roofline and from the opponent, a sentence each.

    Args:
        timing: the candidate's; the judge's own roofline of it goes before the one by shapes.
    """
    least = timing.floor_ms or (bounds.least_ms if bounds is not None else None)
    said = []
    if least:
        ratio = timing.candidate_ms / least
        near = "little is left to gain" if ratio < 1.1 else f"{show_ratio(ratio)} that is used"
        said.append(f"The roofline is {ms_text(least)} a call on this machine: {near}.")
    best = bounds.opponent if bounds is not None else None
    if best is not None and best.speedup > 1:
        ratio = timing.speedup.value / best.speedup
        side = (
            f"{show_ratio(ratio)} as fast as"
            if ratio >= 1
            else f"only {show_ratio(ratio)} as fast as"
        )
        said.append(
            f"It is {side} `{best.name}`, the fastest line of PyTorch ({ms_text(best.ms)})."
        )
    return said


def ms_text(ms: float) -> str:
    """Milliseconds as `12.3 µs` or `4.56 ms`."""
    return f"{ms * 1e3:.3g} µs" if ms < 1 else f"{ms:.4g} ms"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.3g} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.3g} kB"
