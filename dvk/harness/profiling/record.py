"""Schema of a profile; read by feedback, reports and the coverage reward. Imports no torch.

A profile is made in the process of the call (`profile.profile_call`) and compared with the machine's ceilings in another (`against`). If
made in a candidate's process it is untrusted, but good enough for feedback; a reward should read one that trusted code made while replaying
the candidate's kernels.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError

from dvk.harness.timing.roofline import Ceilings, floor_ms
from dvk.records import Device, Record, Status, Verdict

Origin = Literal["own", "library", "copy"]


class KernelTime(Record):
    """One kernel of the device, or one operator on a CPU, over all its launches in a call."""

    name: str = Field(
        description="Name of the compiled function; on a CPU of the ATen operator, or `own code`."
    )
    origin: Origin = Field(
        description="The candidate's own, PyTorch's or another library's, or a copy or fill of memory."
    )
    count: float = Field(ge=0, description="Launches a call, averaged over calls.")
    device_ms: float = Field(
        ge=0, description="Milliseconds on the device a call, all launches together."
    )
    share: float = Field(ge=0, le=1, description="Share of the device time of a call.")
    registers: int | None = Field(None, description="A thread.")
    spill_bytes: int | None = Field(
        None, description="A thread: registers that did not fit and live in memory."
    )
    shared_bytes: int | None = Field(None, description="A block, static and dynamic.")
    threads: int | None = Field(None, description="Threads a block.")
    blocks: int | None = Field(
        None, description="Blocks a launch; of the largest launch where they differ."
    )
    occupancy: float | None = Field(
        None, description="Warps that fit on a multiprocessor at once, as a share of its most."
    )
    limiter: str | None = Field(
        None,
        description="What keeps occupancy below 1: registers, shared memory, block size or blocks.",
    )
    waves: float | None = Field(
        None, description="Blocks divided by those that run at once on the whole device."
    )
    num_bytes: float | None = Field(
        None,
        description="Estimate: bytes of the tensors a call's launches were given, each once a launch.",
    )
    flops: float | None = Field(None, description="Estimate: floating-point operations a call.")
    gbps: float | None = Field(
        None, description="num_bytes over device time, in 1e9 bytes a second."
    )
    gflops: float | None = Field(None, description="flops over device time, in 1e9 a second.")
    memory_share: float | None = Field(
        None, description="gbps as a share of the machine's measured bandwidth."
    )
    compute_share: float | None = Field(
        None, description="gflops as a share of the machine's measured rate."
    )
    counters: dict[str, float | str] = Field(
        default_factory=dict, description="From Nsight Compute: see harness.ncu."
    )


class Profile(Record):
    """Distribution of the time of one call."""

    device: Device = Field(description="Where it ran.")
    num_calls: int = Field(ge=1, description="Calls behind the averages.")
    wall_ms: float = Field(
        ge=0, description="Median milliseconds of a call as the host sees it, without the profiler."
    )
    device_ms: float = Field(
        ge=0,
        description="Milliseconds the device works a call, overlapping kernels each counted in full.",
    )
    host_ms: float = Field(
        ge=0,
        description="Milliseconds a call in which the device does nothing: Python, launches, allocation.",
    )
    coverage: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Share of device time in the candidate's own kernels; null when the device did nothing.",
    )
    kernels: tuple[KernelTime, ...] = Field((), description="By device time, longest first.")
    num_multiprocessors: int | None = Field(None, description="Multiprocessors of the GPU.")
    num_bytes: float | None = Field(
        None, description="Inputs, weights and outputs, once each: what a call has to move."
    )
    flops: float | None = Field(
        None, description="What the reference computes, floating-point operations a call."
    )
    floor_ms: float | None = Field(None, description="Roofline of the call on this machine.")
    counters_missing: str | None = Field(
        None,
        description="Why there are no Nsight Compute counters; null when there are, or unasked.",
    )


def profile_of(verdict: Verdict) -> Profile | None:
    """Return the profile in a verdict; None if it has none, or one of another version."""
    try:
        return None if verdict.profile is None else Profile.model_validate(verdict.profile)
    except ValidationError:
        return None


def coverage(verdict: Verdict) -> float | None:
    """Return the share of a call's device time in the candidate's kernels; None without a trusted measurement.

    Measured from launches that trusted code replayed, or from its threads' program counters; never from the candidate's process, as
    `profile_of(verdict).coverage` may be. 0 if not ok.
    """
    return verdict.coverage if verdict.status is Status.OK else 0.0


def against(profile: Profile, ceilings: Ceilings | None, precision: str = "fp32") -> Profile:
    """Return `profile` with achieved rates and, with ceilings, shares of them and the floor.

    Args:
        profile: as measured.
        ceilings: this machine's, None when `dvk doctor` has not measured it.
        precision: precision whose matmul rate is the ceiling.
    """
    rate = ceilings.gflops.get(precision) if ceilings else None
    kernels = []
    for kernel in profile.kernels:
        seconds = kernel.device_ms / 1e3
        gbps = kernel.num_bytes / seconds / 1e9 if kernel.num_bytes and seconds else None
        gflops = kernel.flops / seconds / 1e9 if kernel.flops and seconds else None
        shares = {
            "gbps": gbps,
            "gflops": gflops,
            "memory_share": gbps / ceilings.memory_gbps if gbps and ceilings else None,
            "compute_share": gflops / rate if gflops and rate else None,
        }
        kernels.append(kernel.model_copy(update=shares))
    floor = None
    if ceilings and profile.num_bytes:
        floor = floor_ms(
            profile.num_bytes, ceilings, flops=profile.flops or 0.0, precision=precision
        )
    return profile.model_copy(update={"kernels": tuple(kernels), "floor_ms": floor})
