"""Counters of a GPU's kernels by Nsight Compute, if it is installed and may count. Imports no torch.

    result = measure([sys.executable, "calls_it.py"])       # runs the program under ncu
    profile = with_counters(profile, result)

Many machines restrict the counters to administrators; then, as without ncu, the result has a reason and no counters. Clocks are left
unlocked (ncu would lock them), caches are flushed before each kernel.

The program runs as this process does: call from a sandboxed child if it is untrusted (`ncu_run.serve`).
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from dvk.harness.profiling.record import Profile

Counters = dict[str, float | str]
"""Counters by short name (`COUNTERS`, and `stall`: the most frequent stall reason) of one kernel, medians over its launches."""

COUNTERS = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_percent",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_percent",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_percent",
    "lts__t_sector_hit_rate.pct": "l2_hit_percent",
    "launch__registers_per_thread": "registers",
    "dram__bytes.sum": "dram_bytes",
    "gpu__time_duration.sum": "duration_ns",
}
"""Metric of Nsight Compute → short name, in base units."""
STALLS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")


@dataclass(frozen=True)
class NcuResult:
    """Counters by kernel name; or none, and the reason."""

    kernels: dict[str, Counters] = field(default_factory=dict)
    reason: str | None = None


def find() -> str | None:
    """Return the path of ncu."""
    if (path := shutil.which("ncu")) is not None:
        return path
    for pattern in PLACES:
        for place in sorted(Path("/").glob(pattern[1:]), reverse=True):
            if os.access(place, os.X_OK):
                return str(place)
    return None


def command(
    ncu: str, program: Sequence[str], kernels: Sequence[str] = (), launches: int = 20
) -> list[str]:
    """Return the command line that runs `program` under ncu and prints CSV.

    Args:
        ncu: path of the tool.
        program: the program's command line.
        kernels: names of functions to count, all if empty.
        launches: stop counting after this many.
    """
    metrics = [*COUNTERS, *(STALL.format(stall) for stall in STALLS)]
    words = [
        ncu,
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--target-processes",
        "all",
        "--clock-control",
        "none",
    ]
    words += ["--metrics", ",".join(metrics), "--launch-count", str(launches)]
    if kernels:
        words += ["--kernel-name", "regex:^(" + "|".join(map(re.escape, kernels)) + ")$"]
    return [*words, *program]


def measure(
    program: Sequence[str],
    kernels: Sequence[str] = (),
    launches: int = 20,
    timeout_s: float = 120.0,
) -> NcuResult:
    """Run `program` under ncu; it and its children are killed after `timeout_s`. Raises nothing."""
    ncu = find()
    if ncu is None:
        return NcuResult(reason="Nsight Compute (ncu) is not installed")
    try:
        child = subprocess.Popen(
            command(ncu, program, kernels, launches),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return NcuResult(reason=f"{ncu} does not start: {error.strerror}")
    try:
        text, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return NcuResult(reason=f"Nsight Compute took longer than {timeout_s:g} s")
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
    return read(text)


def read(text: str) -> NcuResult:
    """Parse ncu's output: its messages (`==PROF== …`), the program's lines, and a table with a row of units below its head."""
    kernels = parse(text)
    if kernels:
        return NcuResult(kernels)
    if "ERR_NVGPUCTRPERM" in text:
        return NcuResult(
            reason="the driver keeps GPU counters for administrators (ERR_NVGPUCTRPERM)"
        )
    errors = [
        line.removeprefix("==ERROR==").strip()
        for line in text.splitlines()
        if line.startswith("==ERROR==")
    ]
    return NcuResult(
        reason=f"Nsight Compute counted nothing: {errors[0][:200]}"
        if errors
        else "Nsight Compute saw no kernel"
    )


def parse(text: str) -> dict[str, Counters]:
    """Return counters by kernel from ncu's raw CSV page; empty without a table."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return {}
    rows = list(csv.DictReader(line for line in lines[start:] if line.startswith('"')))
    seen: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if not (row.get("ID") or "").isdigit():  # the units
            continue
        for metric, value in row.items():
            number = _number(value)
            if number is not None and metric is not None:
                seen[row.get("Kernel Name") or "?"][metric].append(number)
    return {name: _counters(values) for name, values in seen.items()}


def with_counters(profile: Profile, result: NcuResult) -> Profile:
    """Return `profile` with the counters of its kernels, or the reason for having none."""
    short: dict[str, list[Counters]] = defaultdict(list)
    for name, counters in result.kernels.items():
        short[_short(name)].append(counters)
    kernels = []
    for kernel in profile.kernels:
        found = result.kernels.get(kernel.name)
        alike = short[_short(kernel.name)]
        if (
            found is None and len(alike) == 1
        ):  # several: instances of a template, which the two tools spell differently
            found = alike[0]
        kernels.append(kernel.model_copy(update={"counters": found}) if found else kernel)
    return profile.model_copy(update={"kernels": tuple(kernels), "counters_missing": result.reason})


def _counters(values: dict[str, list[float]]) -> Counters:
    result: Counters = {
        name: median(values[metric]) for metric, name in COUNTERS.items() if values.get(metric)
    }
    stalls = {
        stall: median(values[STALL.format(stall)])
        for stall in STALLS
        if values.get(STALL.format(stall))
    }
    stalls.pop("not_selected", None)  # ready, but another warp was selected: no reason to wait
    if stalls and max(stalls.values()) > 0:
        result["stall"] = max(stalls, key=lambda stall: stalls[stall])
    return result


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def _short(name: str) -> str:
    """Return a function's name without its type, namespaces, template and parameter lists: `void n::f<4>(int)` → `f`."""
    plain = name.replace("(anonymous namespace)", "").replace("<unnamed>", "")
    head = re.split(r"[<(]", plain, maxsplit=1)[0].split()
    return head[-1].split("::")[-1] if head else name
