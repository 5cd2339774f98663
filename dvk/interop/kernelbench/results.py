"""KernelBench's run folders: written from verdicts for its analysis scripts, and read for their kernels.

    level_{L}_problem_{P}_sample_{S}_kernel.py     the kernels
    eval_results.json                              {"P": [{sample_id, compiled, correctness, metadata, runtime, runtime_stats}]}
    baseline_eager.json, baseline_compile.json     {"levelL": {file: {mean, …}}}, to be put under its results/timing/HARDWARE/

A folder of theirs holds one level. Its analysis pairs results with baselines by their order, so both are in the order of problem
numbers and hold every problem. Times are milliseconds; the mean in its files is here the median of paired calls.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk.errors import UsageError
from dvk.records import Status, Verdict

RESULTS = "eval_results.json"
KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
NOT_COMPILED = (Status.REJECTED, Status.COMPILE_ERROR)


@dataclass(frozen=True)
class KernelBenchResult:
    """One sample at one problem.

    Attributes:
        level, problem, sample: numbers; levels and problems count from 1.
        file: of the problem, e.g. `19_ReLU.py`.
        verdict: None if there is no candidate.
        source: of the candidate.
        error: the reason for a missing verdict.
    """

    level: int
    problem: int
    sample: int
    file: str
    verdict: Verdict | None = None
    source: str | None = None
    error: str | None = None


def write(folder: Path, results: Sequence[KernelBenchResult]) -> list[Path]:
    """Write run folders, one a level (`level1`, …), or `folder` itself if there is only one level.

    Returns:
        The `eval_results.json` written.

    Raises:
        UsageError: the folder cannot be written.
    """
    levels: dict[int, list[KernelBenchResult]] = defaultdict(list)
    for result in sorted(results, key=lambda one: (one.level, one.problem, one.sample)):
        levels[result.level].append(result)
    written = []
    try:
        for level, found in levels.items():
            place = folder if len(levels) == 1 else folder / f"level{level}"
            place.mkdir(parents=True, exist_ok=True)
            for one in found:
                if one.source is not None:
                    _whole(
                        place
                        / f"level_{level}_problem_{one.problem}_sample_{one.sample}_kernel.py",
                        one.source,
                    )
            for name in ("eager", "compile"):
                times = baselines(found, name)
                if name == "eager" or any(time["mean"] > 0 for time in times.values()):
                    _whole(
                        place / f"baseline_{name}.json",
                        json.dumps({f"level{level}": times}, indent=4),
                    )
            entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
            for one in found:
                entries[str(one.problem)].append(entry(one))
            _whole(place / RESULTS, json.dumps(entries, indent=4))
            written.append(place / RESULTS)
    except OSError as error:
        raise UsageError(
            f"cannot write `{folder}`: {error.strerror}",
            "choose a writable folder for --kernelbench",
        ) from None
    return written


def entry(result: KernelBenchResult) -> dict[str, Any]:
    """One object of eval_results.json."""
    verdict = result.verdict
    timing = verdict.timing if verdict is not None else None
    machine = verdict.machine if verdict is not None else ""
    metadata: dict[str, Any] = {"hardware": machine, "device": machine, "problem_name": result.file}
    if verdict is None:
        metadata["compilation_error"] = result.error or "no candidate"
    elif verdict.status in NOT_COMPILED:
        metadata["compilation_error"] = verdict.error
    elif verdict.status is Status.MISMATCH:
        metadata["correctness_issue"] = verdict.error
        metadata["max_difference"] = (
            [] if verdict.worst_error is None else [f"{verdict.worst_error:.6g}"]
        )
    elif verdict.status is not Status.OK:
        metadata["runtime_error"], metadata["runtime_error_name"] = (
            verdict.error,
            verdict.status.value,
        )
    else:
        metadata["correctness_trials"] = f"({verdict.num_checks} / {verdict.num_checks})"
    stats: dict[str, Any] = {}
    if timing is not None:
        stats = {
            "mean": timing.candidate_ms,
            "num_trials": timing.num_pairs,
            "hardware": machine,
            "device": machine,
        }
        metadata["speedup"] = timing.speedup.model_dump()
        metadata["excessive_speedup"] = timing.speedup.value > 10
    return {
        "sample_id": result.sample,
        "compiled": verdict is not None and verdict.status not in NOT_COMPILED,
        "correctness": verdict is not None and verdict.status is Status.OK,
        "metadata": metadata,
        "runtime": timing.candidate_ms if timing is not None else -1.0,
        "runtime_stats": stats,
        "ref_runtime": timing.reference_ms if timing is not None else -1.0,
        "ref_runtime_stats": {"mean": timing.reference_ms, "num_trials": timing.num_pairs}
        if timing is not None
        else {},
    }


def baselines(results: Sequence[KernelBenchResult], name: str) -> dict[str, dict[str, Any]]:
    """Median times of a level's references by file; −1 if there is none, since no candidate was right."""
    result: dict[str, dict[str, Any]] = {}
    for one in results:
        timing = one.verdict.timing if one.verdict is not None else None
        ms = (
            None
            if timing is None
            else timing.reference_ms
            if name == "eager"
            else timing.baselines_ms.get(name)
        )
        if ms is not None or one.file not in result:
            trials = timing.num_pairs if timing is not None and ms is not None else 0
            result[one.file] = {"mean": ms if ms is not None else -1.0, "num_trials": trials}
    return result


def kernels(folder: Path) -> dict[tuple[int, int], dict[int, str]]:
    """(level, problem) → sample → source of the kernels in a run folder and its sub-folders.

    Raises:
        UsageError: there are none.
    """
    result: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    for path in sorted(folder.rglob("*_kernel.py")) if folder.is_dir() else []:
        named = KERNEL.fullmatch(path.name)
        if named is not None:
            level, problem, sample = map(int, named.groups())
            result[level, problem][sample] = path.read_text(encoding="utf-8", errors="replace")
    if not result:
        raise UsageError(
            f"no kernels in `{folder}`",
            "a run folder of KernelBench holds level_1_problem_1_sample_0_kernel.py and so on",
        )
    return dict(result)


def _whole(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    aside.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(aside, path)
