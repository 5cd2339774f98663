"""What the judge found: a `Verdict` with its `Timing` and `Claim`."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

from pydantic import Field, model_validator

from dvk.records.interval import Interval
from dvk.records.record import Record

PROTOCOL = 11
"""Version of verdicts; raised when the judge would decide differently or a verdict's fields change their meaning."""


class Status(str, Enum):
    """The outcome of a candidate."""

    OK = "ok"
    """Compiled, ran and agreed with the reference on all inputs."""
    REJECTED = "rejected"
    """Rejected before running: no ModelNew, wrong signature, not Python."""
    COMPILE_ERROR = "compile_error"
    """A compiler (Python, g++, nvcc, Triton) rejected it."""
    LAUNCH_ERROR = "launch_error"
    """It raised or crashed while constructing or running."""
    MISMATCH = "mismatch"
    """It ran and was wrong: values, dtype, shape, stride, device, pytree or a mutated input."""
    TIMEOUT = "timeout"
    """It exceeded its time limit."""
    CHEAT = "cheat"
    """It tried to deceive the judge."""
    BROKEN_TASK = "broken_task"
    """The reference itself failed, so the result says nothing about the candidate."""


Tier = Literal["smoke", "search", "claim"]


class Claim(Record):
    """Combined result of several fresh sets of processes: is the speedup reproducible?"""

    speedup: Interval = Field(
        description="Mean log-speedup over processes with its t-interval at `level`."
    )
    level: float = Field(
        0.95,
        description="Confidence of that interval: 0.99 at the first look, 0.97 at the second, 0.99 at the third.",
    )
    processes: tuple[float, ...] = Field(
        description="Median speedup of each fresh process, in the order measured."
    )
    control: Interval = Field(
        description="The reference against itself, by the same rules in the same processes (A/A)."
    )
    margin: float = Field(
        description="What the interval's lower end must exceed 1 by: max(1 %, 3 × the control's half-width, 3 × what it is off)."
    )
    holds: bool = Field(
        description="The lower end exceeds 1 + margin, with the same sign in every process."
    )
    why: str = Field("", description="Why it does not hold; empty when it does.")


class Timing(Record):
    """Paired times of reference and candidate."""

    candidate_ms: float = Field(description="Median time of one candidate call.")
    reference_ms: float = Field(
        description="Median time of one eager reference call, from the same pairs."
    )
    speedup: Interval = Field(description="Over the eager reference.")
    baselines: dict[str, Interval] = Field(
        default_factory=dict, description="Speedup over other baselines, e.g. `compile`, by name."
    )
    baselines_ms: dict[str, float] = Field(
        default_factory=dict, description="Median time of one call of each other baseline."
    )
    num_pairs: int = Field(description="Paired samples behind the interval.")
    seconds: float = Field(description="Wall clock spent measuring.")
    regime: Literal["end_to_end", "device"] = Field(
        "end_to_end",
        description="`end_to_end`: a call as users make it, host included, device idle before; "
        "`device`: both arms replayed from CUDA graphs that the judge captured.",
    )
    charged_ms: float = Field(
        0.0, description="Time a call that only the judge's clock saw; it is part of candidate_ms."
    )
    floor_ms: float | None = Field(
        None,
        description="Roofline: bytes that must move at the machine's measured bandwidth; null when unmeasured.",
    )
    claim: Claim | None = Field(None, description="Present at the claim tier.")


class Verdict(Record):
    """The judge's result for one candidate."""

    status: Status = Field(description="The outcome.")
    tier: Tier = Field(description="How far the judge was asked to go.")
    stage: Literal["static", "compile", "check", "time", "done"] = Field(
        description="Where it ended."
    )
    error: str | None = Field(
        None, description="The error, for a reader who wants to fix it; null if ok."
    )
    precision: str | None = Field(None, description="Precision class it was held to.")
    tolerance: float | None = Field(
        None, description="Largest admitted error relative to the output's scale."
    )
    worst_error: float | None = Field(
        None, description="Largest error seen, relative to the output's scale."
    )
    worst_absolute_error: float | None = Field(
        None,
        description="Largest absolute error of the first native call; null if it was not right, or there is no floating output.",
    )
    num_checks: int = Field(0, description="Input sets (seeds × shapes) compared.")
    shapes: tuple[str, ...] = Field((), description="The shape variants compared, as text.")
    timing: Timing | None = Field(
        None, description="Present if and only if ok at the search or claim tier on a timed device."
    )
    untimed_reason: str | None = Field(None, description="Why an ok verdict carries no timing.")
    machine: str = Field(
        "", description="Short fingerprint of the machine: CPU or GPU name, cores, torch version."
    )
    contract: Literal["module", "plan"] | None = Field(
        None,
        description="`module`: the candidate's own host code ran; `plan`: trusted code replayed its kernels.",
    )
    isolation: str = Field(
        "", description="What kept the candidate's process in, e.g. `landlock6+seccomp+net+user`."
    )
    weights: Literal["randomised", "same_seed"] | None = Field(
        None,
        description="Whether weights were drawn again and loaded, or only equal by construction under one seed.",
    )
    families: tuple[str, ...] = Field(
        (), description="Kinds of inputs compared, e.g. `native`, `zero_mean`."
    )
    skipped: dict[str, str] = Field(
        default_factory=dict, description="Kinds of inputs left out, each with the reason."
    )
    health: tuple[str, ...] = Field(
        (),
        description="What is degenerate about the problem: answers it accepts though they were not computed from its inputs.",
    )
    written_inputs: tuple[str, ...] = Field(
        (),
        description="Inputs that the reference writes in place: fresh for each call, compared after it.",
    )
    baselines_left_out: dict[str, str] = Field(
        default_factory=dict, description="Why a baseline that was asked for has no time."
    )
    notes: tuple[str, ...] = Field(
        (),
        description="What callers may want to know of a candidate that is right, e.g. that its output has other strides.",
    )
    coverage: float | None = Field(
        None,
        description="Share of device time in the candidate's own kernels, 0 to 1; null when not measured.",
    )
    compiled: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="By kernel: registers, spill_bytes, shared_bytes, as the compiler tells them.",
    )
    profile: dict[str, Any] | None = Field(
        None,
        description="Where the time goes (dvk.harness.profiling.profile); null unless asked for.",
    )
    cached: bool = Field(
        False,
        description="Taken from the verdict cache: judged before, on this machine, by this protocol.",
    )
    seconds: float = Field(0.0, description="Wall clock the judge spent.")
    stages_s: dict[str, float] = Field(
        default_factory=dict,
        description="Seconds by stage: setup, record, compile, check, time, queue …",
    )
    log: str = Field("", description="The last part of what the candidate printed.")
    traceback: str = Field(
        "",
        description="Traceback of an exception inside dvk that ended the work on the task; empty otherwise.",
    )

    @property
    def degenerate(self) -> bool:
        """Whether the task cannot separate a real answer from a made-up one, so that its results say nothing."""
        return any(remark.startswith("degenerate") for remark in self.health)

    @model_validator(mode="after")
    def _consistent(self) -> Verdict:
        if self.timing is not None and self.status is not Status.OK:
            raise ValueError("timing belongs to ok verdicts only")
        if self.status is Status.OK and self.error:
            raise ValueError("an ok verdict has no error")
        if self.status is not Status.OK and not self.error:
            raise ValueError("a verdict that is not ok says what was wrong")
        if (
            self.status is Status.OK
            and self.timing is None
            and self.tier != "smoke"
            and not self.untimed_reason
        ):
            raise ValueError("an untimed ok verdict above the smoke tier says why")
        return self

    @property
    def faster(self) -> bool:
        """Whether the speedup's lower bound exceeds 1; at the claim tier, whether the claim holds."""
        if self.timing is None:
            return False
        return (
            self.timing.claim.holds
            if self.timing.claim is not None
            else self.timing.speedup.lo > 1.0
        )
