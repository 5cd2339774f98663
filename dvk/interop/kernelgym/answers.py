"""A verdict as KernelGYM's result: the fields that its trainer's reward and its prompts read.

`completed` says that the candidate has a verdict: right, wrong, or a cheat (`decoy_kernel`), which earns its trainer's
penalty. `timeout` and `failed` say that there is none. Coverage is given only if trusted code saw the kernels run.
"""

from __future__ import annotations

from typing import Any

from dvk.errors import DvkError, MachineError
from dvk.harness.profiling.record import coverage, profile_of
from dvk.interop.kernelgym.fields import EvaluationResult
from dvk.records import Status, Verdict

_CODES = {
    Status.REJECTED: "VALIDATION_ERROR",
    Status.COMPILE_ERROR: "COMPILATION_ERROR",
    Status.LAUNCH_ERROR: "RUNTIME_ERROR",
    Status.MISMATCH: "CORRECTNESS_ERROR",
    Status.TIMEOUT: "TIMEOUT_ERROR",
    Status.CHEAT: "VALIDATION_ERROR",
    Status.BROKEN_TASK: "VALIDATION_ERROR",
}
_STATES = {Status.TIMEOUT: "timeout", Status.BROKEN_TASK: "failed"}
_ERRORS = {
    Status.COMPILE_ERROR: "compilation_error",
    Status.REJECTED: "compilation_error",
    Status.LAUNCH_ERROR: "runtime_error",
    Status.MISMATCH: "correctness_issue",
}
NO_KERNEL = "it launches PyTorch's kernels only"
MAX_KERNELS = 12
"""Maximal number of profile rows: its trainer shows all of them to the model."""


def result_of(
    task_id: str,
    verdict: Verdict,
    *,
    over: str | None = None,
    whole: bool = False,
    detect: bool = False,
) -> EvaluationResult:
    """The result of one evaluation.

    Args:
        task_id: the caller's.
        verdict: the judge's verdict.
        over: the speedup's baseline; None is eager.
        whole: put the whole verdict under `metadata.dvk`.
        detect: call a right candidate whose profile has none of its own kernels a decoy, as KernelGYM does. One that leaves a part of
            the work to PyTorch is not; coverage gives the share.
    """
    idle = detect and launches_none(verdict)
    reference_ms, candidate_ms, speedup = (-1.0, -1.0, 0.0) if idle else times(verdict, over)
    decoy = (
        idle
        or verdict.status is Status.CHEAT
        or (verdict.status is Status.REJECTED and verdict.stage != "static")
    )
    early = verdict.status in (
        Status.REJECTED,
        Status.COMPILE_ERROR,
        Status.BROKEN_TASK,
    ) or verdict.stage in ("static", "compile")
    return EvaluationResult(
        task_id=task_id,
        status=_STATES.get(verdict.status, "completed"),
        compiled=decoy or not early,
        correctness=verdict.status is Status.OK,
        decoy_kernel=decoy,
        reference_runtime=reference_ms,
        kernel_runtime=candidate_ms,
        speedup=speedup,
        metadata={
            **_metadata(verdict, speedup, decoy),
            **({"dvk": {"verdict": verdict.model_dump(mode="json")}} if whole else {}),
        },
        error_message=NO_KERNEL
        if idle
        else f"reference: {verdict.error}"
        if verdict.status is Status.BROKEN_TASK
        else verdict.error,
        error_code="VALIDATION_ERROR" if idle else _CODES.get(verdict.status),
    )


def launches_none(verdict: Verdict) -> bool:
    """Whether it is right and its profile shows no time in generated kernels. The profile comes from the candidate's process, which has no
    reason to fake that."""
    profile = profile_of(verdict) if verdict.status is Status.OK else None
    return (
        profile is not None
        and bool(profile.kernels)
        and not any(kernel.origin == "own" for kernel in profile.kernels)
    )


def failure_of(task_id: str, error: DvkError) -> EvaluationResult:
    """The result of an error of the reference or of this machine."""
    code = "SYSTEM_ERROR" if isinstance(error, MachineError) else "VALIDATION_ERROR"
    return EvaluationResult(
        task_id=task_id,
        status="failed",
        compiled=False,
        correctness=False,
        decoy_kernel=False,
        reference_runtime=-1.0,
        kernel_runtime=-1.0,
        speedup=0.0,
        metadata={},
        error_message=f"{error.message} ({error.hint})",
        error_code=code,
    )


def times(verdict: Verdict, over: str | None) -> tuple[float, float, float]:
    """Milliseconds of reference and candidate, and the speedup over eager or the baseline `over`; -1, -1, 0 where untimed."""
    timing = verdict.timing
    if timing is None or (over is not None and over not in timing.baselines):
        return -1.0, -1.0, 0.0
    if over is None:
        return timing.reference_ms, timing.candidate_ms, timing.speedup.value
    return timing.baselines_ms[over], timing.candidate_ms, timing.baselines[over].value


def _metadata(verdict: Verdict, speedup: float, decoy: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"hardware": verdict.machine}
    if verdict.status is Status.OK:
        result["correctness_trials"] = f"({verdict.num_checks} / {verdict.num_checks})"
    elif verdict.status in _ERRORS and not decoy:
        result[_ERRORS[verdict.status]] = verdict.error
    if verdict.untimed_reason:
        result["untimed_reason"] = verdict.untimed_reason
    if verdict.timing is not None and speedup == verdict.timing.speedup.value:
        result["speedup_interval"] = [verdict.timing.speedup.lo, verdict.timing.speedup.hi]
    profile = profile_of(verdict)
    if profile is None:
        return result
    total_us, share = profile.device_ms * 1e3, coverage(verdict)
    own = [kernel for kernel in profile.kernels if kernel.origin == "own"]
    result["profiling"] = {
        "kernels": [
            {"name": k.name, "cuda_time_us": round(k.device_ms * 1e3, 3), "count": k.count}
            for k in profile.kernels[:MAX_KERNELS]
        ],
        "kernel_count": len(profile.kernels),
        "total_cuda_time_us": total_us,
    }
    result |= {
        "num_total_kernels": len(profile.kernels),
        "num_custom_kernels": len(own) if share is not None else 0,
        "total_kernel_run_time_in_profiling_us": total_us,
        "custom_kernel_cuda_time_in_profiling_us": total_us * share if share is not None else 0.0,
        "custom_kernel_cuda_time_coverage": "unknown" if share is None else f"{share:.4f}",
    }
    return result
