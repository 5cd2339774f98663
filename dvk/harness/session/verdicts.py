"""Verdicts from findings, samples and deaths. Parent side, pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dvk import gpu_memory, machine
from dvk.config import Config
from dvk.harness.profiling.record import Profile, against
from dvk.harness.timing import roofline
from dvk.records import Claim, Device, Interval, Status, Tier, Timing, Verdict
from dvk.sandbox import Death
from dvk.stats.intervals import median_ratio, process_interval, ratio_interval

CHECKED = (
    "profile",
    "coverage",
    "num_checks",
    "shapes",
    "families",
    "skipped",
    "worst_error",
    "worst_absolute_error",
    "tolerance",
    "weights",
    "notes",
)
"""Findings taken from the first process, which was checked on everything, if a second one was timed."""
CROWDED_S = (0.0, 3.0)
"""See `retry_s`."""


@dataclass
class ProcessFindings:
    """Results of one set of processes.

    Attributes:
        findings: fields of a verdict from the referee, with charged_ms, seconds_timed, regime if it timed.
        log: the candidate's last output.
        isolation: its isolation.
        samples: milliseconds of each arm, an entry per round; empty if nothing was timed.
    """

    findings: dict[str, Any]
    log: str = ""
    isolation: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)


def verdict_of(
    measured: ProcessFindings, timing: Timing | None, tier: Tier, device: str, seconds: float
) -> Verdict:
    """Return the record."""
    findings = {
        name: value for name, value in measured.findings.items() if name in Verdict.model_fields
    }
    if findings.get("error") is not None:
        findings["error"] = gpu_memory.shorten(findings["error"])
    if findings.get("profile") is not None:
        known = roofline.load("cuda" if device == "cuda" else "cpu")
        profile = against(
            Profile.model_validate(findings["profile"]), known, findings.get("precision") or "fp32"
        )
        findings["profile"] = profile.model_dump(mode="json")
    return Verdict.model_validate(
        {
            **findings,
            "timing": timing,
            "tier": tier,
            "isolation": measured.isolation,
            "machine": machine.fingerprint(device),
            "seconds": round(seconds, 4),
            "log": measured.log,
        }
    )


def merge_findings(first: ProcessFindings, second: ProcessFindings) -> ProcessFindings:
    """Combine the checks of the first process with all else from the second."""
    checks = {name: first.findings[name] for name in CHECKED if name in first.findings}
    return ProcessFindings(
        {**second.findings, **checks}, second.log, second.isolation, second.samples
    )


def search_timing(measured: ProcessFindings, baselines: Sequence[str]) -> Timing | None:
    """Return times of one set of processes; None if nothing was timed."""
    samples = measured.samples
    if not samples:
        return None
    ours = samples["candidate"]
    over: dict[str, Interval] = {
        name: ratio_interval(samples[name], ours) for name in baselines if name in samples
    }
    return Timing(
        candidate_ms=median(ours),
        reference_ms=median(samples["reference"]),
        speedup=ratio_interval(samples["reference"], ours),
        baselines=over,
        baselines_ms={name: median(samples[name]) for name in over},
        num_pairs=len(ours),
        seconds=measured.findings["seconds_timed"],
        charged_ms=measured.findings["charged_ms"],
        regime=measured.findings["regime"],
    )


def claim_timing(sets: Sequence[ProcessFindings], baselines: Sequence[str], claim: Claim) -> Timing:
    """Return times of several sets of processes: medians of all samples, intervals over the processes."""
    names = [name for name in ("reference", *baselines) if all(name in one.samples for one in sets)]
    every = {name: [ms for one in sets for ms in one.samples[name]] for name in names}
    return Timing(
        candidate_ms=median([ms for one in sets for ms in one.samples["candidate"]]),
        reference_ms=median(every["reference"]),
        speedup=claim.speedup,
        baselines={
            name: process_interval(
                [median_ratio(one.samples[name], one.samples["candidate"]) for one in sets]
            )
            for name in names[1:]
        },
        baselines_ms={name: median(every[name]) for name in names[1:]},
        num_pairs=len(every["reference"]),
        seconds=sum(one.findings["seconds_timed"] for one in sets),
        charged_ms=median([one.findings["charged_ms"] for one in sets]),
        regime=sets[0].findings["regime"],
        claim=claim,
    )


def check_roofline(
    measured: ProcessFindings, timing: Timing | None, device: Device
) -> tuple[ProcessFindings, Timing | None]:
    """Turn a time below the roofline, which cannot be right, into a finding."""
    known = roofline.load(device) if "needed_bytes" in measured.findings else None
    if timing is None or known is None:
        return measured, timing
    moved, cache = measured.findings["needed_bytes"], measured.findings["cache_bytes"]
    if (
        why := roofline.impossible(timing.candidate_ms, timing.reference_ms, moved, cache, known)
    ) is not None:
        return ProcessFindings(
            {"status": "cheat", "stage": "time", "error": why}, measured.log, measured.isolation
        ), None
    return measured, timing.model_copy(update={"floor_ms": roofline.floor_ms(moved, known)})


def retry_s(error: str | None, attempt: int) -> float | None:
    """Return seconds after which a candidate that found a shared GPU's memory full is judged again: none, then the time for current ones to
    finish; None if that was not the cause, or the second attempt failed, too."""
    return CROWDED_S[attempt] if gpu_memory.was_short(error) and attempt < len(CROWDED_S) else None


def short_of_memory(verdict: Verdict) -> str | None:
    """Return the text that says that GPU memory was short, for the candidate or for a baseline; None if it was not."""
    texts = (verdict.error, *verdict.baselines_left_out.values(), *verdict.notes)
    return next((text for text in texts if gpu_memory.was_short(text)), None)


def findings_of_death(death: Death, stage: str, config: Config) -> dict[str, Any]:
    """Return the finding for a candidate's death."""
    stage = stage if stage in ("compile", "check", "time") else "compile"
    limits = config.limits
    status, text = Status.LAUNCH_ERROR, f"it ended its process ({death.reason})"
    if death.reason == "timeout":
        status, text = Status.TIMEOUT, f"it took longer than {config.judge.candidate_s:g} s"
    elif death.reason == "memory":
        text = f"out of memory: its processes used more than {limits.memory_bytes / 2**30:.1f} GiB, or all there was"
    elif death.reason == "processes":
        text = f"it started more than {limits.num_processes} processes and threads"
    elif death.reason == "disk":
        text = "it filled its folder with more than it may keep there"
    elif death.reason.startswith("signal"):
        text = f"it crashed ({death.reason.removeprefix('signal ')})"
    elif death.reason == "garbled":
        status, text = Status.CHEAT, "it interfered with the judge's own processes or connections"
    return {"status": status.value, "stage": stage, "error": text}


def broken_reference(death: Death, config: Config) -> str:
    """Return why a reference whose process died cannot be judged against."""
    what = {
        "timeout": f"took longer than {config.limits.wall_s:.0f} s",
        "memory": "ran out of memory",
    }
    return f"the reference {what.get(death.reason, 'ended its process: ' + death.reason)} before any candidate ran"


def median(values: Sequence[float]) -> float:
    """Return the median; needs at least one value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
