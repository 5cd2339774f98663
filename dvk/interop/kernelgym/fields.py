"""Fields of KernelGYM's `POST /evaluate`, under its names; times in ms, `timeout` and `processing_time` in s."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dvk.harness.session.judge_spec import Contract
from dvk.records import Device, Record, Tier

State = Literal["pending", "processing", "completed", "failed", "timeout"]
ENDED = ("completed", "failed", "timeout", "cancelled")
"""Final states of a task; its clients know the last one, too."""


class JudgeOptions(Record):
    """Options of `dvk verify` beyond KernelGYM's fields: the `dvk` of a request. Its presence asks for the whole verdict."""

    tier: Tier = "search"
    baselines: tuple[str, ...] = ()
    backward: bool = False
    require_kernels: bool = False
    contract: Contract = "module"
    profile: bool = False
    brief: bool = False
    device: Device | None = Field(
        None, description="Null takes the server's own: a GPU where it has one."
    )
    inputs: tuple[str, ...] = Field(
        (), description="`--input` specs, where the reference has no get_inputs()."
    )
    init: tuple[str, ...] = Field((), description="`--init` constructor arguments.")
    eval_mode: bool = False
    dtype: str | None = None


class Evaluation(BaseModel):
    """A request. Fields that only steer KernelGYM's own timing are parsed and ignored: dvk's timing is in the judge's settings."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())

    task_id: str = Field(
        min_length=1,
        max_length=100,
        description="The caller's name for it, under which status and results are found.",
    )
    reference_code: str = Field(
        description="KernelBench format: the class `entry_point`, get_inputs(), get_init_inputs()."
    )
    kernel_code: str = Field(description="Defines the class `entry_point` + `New`.")
    entry_point: str = Field(
        "Model", pattern=r"^[A-Za-z_]\w*$", description="The reference's class."
    )
    backend: Literal["triton", "cuda", "cpp", "auto"] = Field(
        "triton",
        description="What the kernels are written in; the last two are ours. Their trainer always says triton.",
    )
    reference_backend: str | None = Field(
        None, description="pytorch, or torch_compile (compile): what speedup is over."
    )
    timeout: int = Field(
        300,
        ge=10,
        le=3600,
        description="Read, without effect: a candidate has the server's `judge.candidate_s`.",
    )
    priority: Literal["low", "normal", "high"] = Field(
        "normal", description="Priority in the queue."
    )
    force_refresh: bool = Field(False, description="Ignore cached verdicts, also of this id.")
    run_performance: bool | None = Field(None, description="False checks and does not time.")
    measure_performance: bool | None = Field(None, description="The same.")
    enable_profiling: bool | None = Field(None, description="Say where the time of a call goes.")
    enable_triton_detection: bool | None = Field(
        None, description="False admits triton candidates that leave the work to PyTorch."
    )
    detect_decoy_kernel: bool | None = Field(None, description="The same, as its trainer says it.")
    workflow: Literal["kernelbench"] = Field(
        "kernelbench", description="`kernel_simple` has no reference, which the judge needs."
    )
    uuid: str | int | None = None
    toolkit: str = "kernelbench"
    backend_adapter: str = "kernelbench"
    num_correct_trials: int = Field(5, ge=1, le=20)
    num_perf_trials: int = Field(100, ge=1, le=1000)
    num_warmup: int = Field(3, ge=0, le=100)
    device_preference: str | None = None
    use_reference_cache: bool | None = None
    is_valid: bool | None = None
    verbose_errors: bool | None = None
    run_correctness: bool | None = None
    run_triton_detection: bool | None = None
    resources: dict[str, Any] | None = None
    dvk: JudgeOptions | None = None


class EvaluationResult(BaseModel):
    """The result. Runtimes are -1 and `speedup` 0 if nothing was timed."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())

    task_id: str
    status: str
    compiled: bool | None = None
    correctness: bool | None = None
    decoy_kernel: bool | None = None
    reference_runtime: float | None = None
    kernel_runtime: float | None = None
    speedup: float | None = None
    metadata: dict[str, Any] | None = None
    error_message: str | None = None
    error_code: str | None = None
    submitted_at: str | float | None = None
    completed_at: str | float | None = None
    processing_time: float | None = None
