"""KernelGYM's result as a verdict. It claims only what its server proves.

Its timing has no interval: reference and candidate are timed separately, perhaps on two GPUs, and rounded to three digits. Such a
speedup is a point estimate with an unknown interval (`Interval.unknown`), so it can rank and never counts as faster. Its checks
are looser than dvk's (tolerance 1e-2 for every dtype, one shape, inputs known beforehand), which `health` records in every ok verdict.
A result that carries a dvk verdict, as `dvk serve` gives it, is that verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from dvk.interop.kernelgym.fields import EvaluationResult
from dvk.records import Interval, Status, Tier, Timing, Verdict

WEAKER = "judged by a KernelGYM server: tolerance 1e-2, one shape, known seeds; its speedup has no interval"
_FAILED = {
    "SYNTAX_ERROR": Status.REJECTED,
    "VALIDATION_ERROR": Status.REJECTED,
    "COMPILATION_ERROR": Status.COMPILE_ERROR,
    "IMPORT_ERROR": Status.COMPILE_ERROR,
    "INSTANTIATION_ERROR": Status.LAUNCH_ERROR,
    "RUNTIME_ERROR": Status.LAUNCH_ERROR,
    "CORRECTNESS_ERROR": Status.MISMATCH,
    "TIMEOUT_ERROR": Status.TIMEOUT,
}
_STAGES: Mapping[Status, Any] = {
    Status.REJECTED: "static",
    Status.COMPILE_ERROR: "compile",
    Status.OK: "done",
}


class NoVerdict(ValueError):
    """An error of the server, not of the candidate: there is no verdict."""


def verdict_of(
    result: EvaluationResult, tier: Tier, seconds: float, *, ours: bool = False
) -> Verdict:
    """The verdict in a result that has ended.

    Args:
        result: the server's result.
        tier: the requested tier; `claim` only of `dvk serve`.
        seconds: the client's waiting time.
        ours: from `dvk serve`, which sends a dvk verdict whenever there is one.

    Raises:
        NoVerdict: the server failed, or rejected the request.
    """
    metadata = result.metadata or {}
    beside = metadata.get("dvk")
    if isinstance(beside, Mapping) and isinstance(beside.get("verdict"), Mapping):
        try:
            return Verdict.model_validate(beside["verdict"])
        except ValidationError as error:
            raise NoVerdict(
                f"its verdict is of another version of dvk: {error.errors()[0]['msg']}"
            ) from None
    if ours:
        raise NoVerdict(result.error_message or f"the task is `{result.status}` without details")
    status, wrong = _status(result, metadata)
    timing = _timing(result) if status is Status.OK and tier != "smoke" else None
    untimed = (
        None
        if status is not Status.OK or timing is not None or tier == "smoke"
        else "the server gave no times"
    )
    return Verdict(
        status=status,
        tier=tier,
        stage=_STAGES.get(status, "check"),
        error=wrong,
        timing=timing,
        untimed_reason=untimed,
        num_checks=_trials(metadata),
        machine=str(metadata.get("gpu_name") or metadata.get("hardware") or ""),
        health=(WEAKER,) if status is Status.OK else (),
        seconds=round(seconds, 4),
    )


def _status(result: EvaluationResult, metadata: Mapping[str, Any]) -> tuple[Status, str | None]:
    """The candidate's status, and the error."""
    said = result.error_message or None
    if result.status == "timeout":
        return Status.TIMEOUT, said or "it took longer than the server allows"
    if result.status != "completed":
        known = _FAILED.get(result.error_code or "")
        if known is None or said is None or "reference" in said.lower():
            raise NoVerdict(said or f"the task is `{result.status}` without details")
        return known, said
    if result.decoy_kernel:
        return (
            Status.CHEAT,
            said or "the server took it for a decoy: it launches PyTorch's kernels only",
        )
    if not result.compiled:
        return Status.COMPILE_ERROR, said or _text(
            metadata, "compilation_error"
        ) or "it does not compile"
    if result.correctness:
        return Status.OK, None
    if (raised := _text(metadata, "runtime_error")) is not None:
        return Status.LAUNCH_ERROR, raised
    if result.error_code == "RUNTIME_ERROR":
        return Status.LAUNCH_ERROR, said or "it failed while running"
    issue = (
        _text(metadata, "correctness_issue") or said or "its outputs differ from the reference's"
    )
    worst = metadata.get("max_difference")
    return Status.MISMATCH, f"{issue}; largest difference {worst[0]}" if isinstance(
        worst, list
    ) and worst else issue


def _timing(result: EvaluationResult) -> Timing | None:
    values = (result.reference_runtime, result.kernel_runtime, result.speedup)
    if not all(value is not None and math.isfinite(value) and value > 0 for value in values):
        return None
    reference_ms, candidate_ms, speedup = (float(value) for value in values if value is not None)
    return Timing(
        candidate_ms=candidate_ms,
        reference_ms=reference_ms,
        speedup=Interval.unknown(speedup),
        num_pairs=0,
        seconds=0.0,
    )


def _trials(metadata: Mapping[str, Any]) -> int:
    """The n of `(p / n)`."""
    _, slash, number = str(metadata.get("correctness_trials") or "").strip("() ").partition("/")
    return int(number) if slash and number.strip().isdigit() else 0


def _text(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    return str(value).strip() or None if value is not None else None
