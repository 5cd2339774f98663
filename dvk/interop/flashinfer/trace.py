"""Verdicts as traces, and a folder of results in FlashInfer-Bench's layout.

    dvk's status              the schema's
    ok                        PASSED, with correctness and performance
    mismatch                  INCORRECT_DTYPE, INCORRECT_SHAPE (of one output, or another structure), else INCORRECT_NUMERICAL
    rejected, compile_error   COMPILE_ERROR
    launch_error, cheat       RUNTIME_ERROR; the log says which
    timeout                   TIMEOUT
    broken_task               none: it says nothing about the solution

An ok verdict without a time has no trace: the schema wants one. `max_relative_error` is relative to |y| + the row's scale, as the judge
measures it; `extra` says so, and holds the interval of the speedup.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dvk import machine
from dvk.errors import UsageError
from dvk.interop.flashinfer.dataset import DEFINITIONS, SOLUTIONS, TRACES, WORKLOADS
from dvk.interop.flashinfer.definition import Definition
from dvk.interop.flashinfer.file_names import file_name
from dvk.interop.flashinfer.workload import Workload
from dvk.records import Status, Verdict

_STATUSES = {
    Status.OK: "PASSED",
    Status.MISMATCH: "INCORRECT_NUMERICAL",
    Status.REJECTED: "COMPILE_ERROR",
    Status.COMPILE_ERROR: "COMPILE_ERROR",
    Status.LAUNCH_ERROR: "RUNTIME_ERROR",
    Status.CHEAT: "RUNTIME_ERROR",
    Status.TIMEOUT: "TIMEOUT",
}
_DTYPE = re.compile(r"` has dtype ")
_SHAPE = re.compile(r"` has shape |the output is .* instead of|` is .* instead of a tensor")
MAX_LOG = 20_000
"""Longest log of a trace, in characters."""
LIBRARIES = ("torch", "triton")


def hardware(verdict: Verdict) -> str:
    """The device's name, as verdicts have it."""
    return verdict.machine.partition(", ")[0] or "unknown"


def status_of(verdict: Verdict) -> str | None:
    """The schema's status; None where it has none."""
    if verdict.status is Status.MISMATCH:
        error = verdict.error or ""
        if _DTYPE.search(error):
            return "INCORRECT_DTYPE"
        if _SHAPE.search(error):
            return "INCORRECT_SHAPE"
    return _STATUSES.get(verdict.status)


def trace(
    definition: str, workload: Workload, solution: str, verdict: Verdict
) -> dict[str, Any] | None:
    """The trace of a verdict; None if the schema has none for it."""
    status, timing = status_of(verdict), verdict.timing
    if status is None or (status == "PASSED" and timing is None):
        return None
    evaluation: dict[str, Any] = {
        "status": status,
        "environment": {
            "hardware": hardware(verdict),
            "libs": {n: v for n in LIBRARIES if (v := machine.version(n)) is not None},
        },
        "timestamp": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "log": "\n".join(part for part in (verdict.error, verdict.log) if part)[:MAX_LOG],
        "correctness": None,
        "performance": None,
    }
    if verdict.status is Status.CHEAT:
        evaluation["log"] = f"cheat: {evaluation['log']}"
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        evaluation["correctness"] = _correctness(verdict)
    if status == "PASSED" and timing is not None:
        evaluation["performance"] = {
            "latency_ms": timing.candidate_ms,
            "reference_latency_ms": timing.reference_ms,
            "speedup_factor": timing.speedup.value,
        }
    return {
        "definition": definition,
        "workload": workload.raw,
        "solution": solution,
        "evaluation": evaluation,
    }


def _correctness(verdict: Verdict) -> dict[str, Any]:
    timing = verdict.timing
    interval = [timing.speedup.lo, timing.speedup.hi] if timing and timing.speedup.known else None
    return {
        "max_relative_error": _number(verdict.worst_error),
        "max_absolute_error": _number(verdict.worst_absolute_error),
        "extra": {
            "judge": "dvk",
            "relative_to": "|y| + root mean square of its row",
            "tolerance": verdict.tolerance,
            "precision": verdict.precision,
            "num_checks": verdict.num_checks,
            "speedup_interval": interval,
            "regime": timing.regime if timing else None,
        },
    }


def _number(value: float | None) -> float | str:
    """A number of the schema, which writes NaN as a text."""
    return "NaN" if value is None or not math.isfinite(value) else value


class ResultsFolder:
    """A data set with results: definitions and workloads as they were read, solutions, traces.

    Raises:
        UsageError: the folder cannot be written.
    """

    def __init__(self, root: Path):
        self.root = root

    def add_problem(
        self, definition: Definition, workloads: Iterable[Workload], source: Path
    ) -> None:
        """Write a definition with its workloads; stored inputs are linked to where they are.

        Args:
            source: the folder that its paths start from.
        """
        raw = {**definition.raw, "op_type": definition.op_type}
        self._write(self._place(DEFINITIONS, definition, ".json"), json.dumps(raw, indent=2))
        lines = []
        for workload in workloads:
            lines.append(
                _line(
                    {
                        "definition": definition.name,
                        "workload": workload.raw,
                        "solution": None,
                        "evaluation": None,
                    }
                )
            )
            for stored in workload.inputs.values():
                if stored.kind == "safetensors":
                    self._link(stored.path, source)
        self._write(self._place(WORKLOADS, definition, ".jsonl"), "".join(lines))

    def add_solution(self, definition: Definition, value: Mapping[str, Any]) -> Path:
        """Write a solution; returns its file."""
        folder = self._place(SOLUTIONS, definition, "")
        return self._write(
            folder / f"{file_name(str(value['name']))}.json", json.dumps(value, indent=2)
        )

    def add_traces(self, definition: Definition, traces: Iterable[Mapping[str, Any]]) -> Path:
        """Write a definition's traces; returns their file."""
        text = "".join(map(_line, traces))
        return self._write(self._place(TRACES, definition, ".jsonl"), text)

    def _place(self, kind: str, definition: Definition, ending: str) -> Path:
        group, name = file_name(definition.op_type), file_name(definition.name)
        return self.root / kind / group / f"{name}{ending}"

    def _write(self, path: Path, text: str) -> Path:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"cannot write `{path}`: {error.strerror}", "choose another folder"
            ) from None
        return path

    def _link(self, stored: Path, source: Path) -> None:
        try:
            place = self.root / stored.relative_to(source)
        except ValueError:
            return  # an absolute path stays as it is
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(stored.resolve())


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value) + "\n"
