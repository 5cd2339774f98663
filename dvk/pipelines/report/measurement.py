"""How the shown version was measured and checked: timing, mode, machine, precision, inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dvk.pipelines.report.attempts import ReportAttempt
from dvk.pipelines.report.units import many
from dvk.records import Device, Task, Timing, Verdict

REGIME = {
    "cuda": "one call at a time on an idle GPU, L2 cache flushed before each, launch latency included",
    "cpu": "one call at a time, caches flushed before each",
}
NUM_KINDS = 3
"""Kinds of inputs that are listed; there may be dozens."""


def facts(
    task: Task, shown: ReportAttempt | None, machine: str, summary: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Terms with their descriptions.

    Args:
        task: the task.
        shown: the attempt that the report is about, if any was right.
        machine: fingerprint for when no verdict has one.
        summary: as printed by `dvk optimize --json`.
    """
    verdict = shown.verdict if shown else None
    rows = []
    if verdict and verdict.timing:
        rows.append(("Timing", _timing(verdict.timing, task.device)))
    if summary.get("mode"):
        note = f"; {summary['train_mode']}" if summary.get("train_mode") else ""
        rows.append(("Mode", summary["mode"] + note))
    rows.append(("Machine", (verdict.machine if verdict else "") or machine or "not recorded"))
    rows.append(("Precision", _precision(task, verdict)))
    if verdict and verdict.num_checks:
        sets = many(verdict.num_checks, "fresh random input set")
        rows.append(("Checked", sets + _kinds(verdict.shapes)))
    if task.inputs:
        inputs = [f"{t.name} {t.dtype}[{','.join(map(str, t.shape))}]" for t in task.inputs]
        rows.append(("Inputs", ", ".join(inputs)))
    if task.written_inputs:
        how = "fresh before each call, compared after it; the drop-in writes them, too"
        rows.append(("Writes in place", f"{', '.join(task.written_inputs)}: {how}"))
    return rows


def _timing(timing: Timing, device: Device) -> str:
    pairs = f"{timing.num_pairs} pairs of reference and candidate"
    if (claim := timing.claim) is None:
        return (
            f"{pairs} in one set of processes, as measured during the search; {REGIME[device]}; median ratio with its "
            "95 % interval"
        )
    return (
        f"{pairs} in {len(claim.processes)} fresh sets of processes; {REGIME[device]}; t-interval over the medians of the "
        f"sets; the reference against itself measured {claim.control}; to be claimed, the lower end must exceed "
        f"{1 + claim.margin:.3f}"
    )


def _precision(task: Task, verdict: Verdict | None) -> str:
    told = f"{(verdict.precision if verdict else None) or task.precision} class"
    if verdict and verdict.tolerance is not None:
        told += f": errors up to {verdict.tolerance:g} of the output’s scale are admitted"
        if verdict.worst_error is not None:
            told += f", the worst seen was {verdict.worst_error:.1g}"
    return told


def _kinds(shapes: Sequence[str]) -> str:
    """The first kinds of inputs that were checked, and the number of the others."""
    if not shapes:
        return ""
    more = len(shapes) - NUM_KINDS
    shown = "; ".join(shapes[:NUM_KINDS]) + (f"; and {more} more" if more > 0 else "")
    return f" of {many(len(shapes), 'kind')}: {shown}"
