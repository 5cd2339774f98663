"""Solutions of FlashInfer-Bench and SOL-ExecBench as jobs, and their verdicts as traces.

A solution is judged once a workload of its definition: the task files, one a workload, lie in dvk's cache.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dvk import resources
from dvk.errors import UsageError
from dvk.interop.flashinfer import trace
from dvk.interop.flashinfer.candidate import candidate_text
from dvk.interop.flashinfer.dataset import Dataset, is_dataset, is_definition, read_dataset
from dvk.interop.flashinfer.definition import Definition
from dvk.interop.flashinfer.solution import Solution
from dvk.interop.flashinfer.task_text import task_text
from dvk.interop.flashinfer.workload import Workload
from dvk.pipelines.verify.jobs import VerifyJob
from dvk.pipelines.verify.rows import VerifyRow
from dvk.records import content_hash

RESULTS = "trace_set"
"""Subfolder of a run for its results in FlashInfer-Bench's layout."""


@dataclass(frozen=True)
class JudgedSolutions:
    """What the jobs were made of, in their order. `left_out` says which solutions are not judged, and why."""

    dataset: Dataset
    jobs: tuple[VerifyJob, ...]
    pairs: tuple[tuple[Solution, Workload], ...]
    left_out: tuple[str, ...] = ()

    def write(self, rows: Sequence[VerifyRow], folder: Path) -> tuple[Path, int]:
        """Write definitions, workloads, solutions and traces below a run's folder; returns where, and how many verdicts have no trace."""
        results = trace.ResultsFolder(folder / RESULTS)
        missing = 0
        for name in dict.fromkeys(solution.definition for solution, _ in self.pairs):
            definition, workloads = self.dataset.one(name, "a solution")
            results.add_problem(definition, workloads, self.dataset.problems[name].root)
            traces = []
            for (solution, workload), row in zip(self.pairs, rows, strict=True):
                if solution.definition != name:
                    continue
                results.add_solution(definition, solution.raw)
                made = trace.trace(name, workload, solution.name, row.verdict)
                traces += [] if made is None else [made]
                missing += made is None
            results.add_traces(definition, traces)
        return results.root, missing


def names_definitions(reference: str) -> bool:
    """Whether a reference is a data set or a definition instead of a task file."""
    return is_dataset(Path(reference)) or is_definition(Path(reference))


def solutions_of(reference: str, files: Sequence[Path]) -> JudgedSolutions:
    """The jobs of solutions.

    Args:
        reference: a data set's folder, or a definition's file.
        files: solutions; all of the data set if there are none.

    Raises:
        UsageError: something cannot be read or is not supported, a definition is missing or has no workload, or there is no solution.
    """
    dataset = read_dataset(Path(reference))
    left_out: list[str] = []
    found = dataset.solutions(files, left_out)
    if not found:
        raise UsageError(
            f"no solutions in `{reference}`", "name them: dvk verify DEFINITION.json SOLUTION.json"
        )
    jobs: list[VerifyJob] = []
    pairs: list[tuple[Solution, Workload]] = []
    for solution in found:
        definition, workloads = dataset.one(solution.definition, f"solution `{solution.name}`")
        text = candidate_text(solution, definition)
        for workload in workloads:
            jobs.append(
                VerifyJob(
                    reference=str(_task_file(definition, workload, workloads)),
                    label=f"{solution.name} ({workload.label})",
                    source=text,
                    workload=workload.uuid,
                )
            )
            pairs.append((solution, workload))
    return JudgedSolutions(dataset, tuple(jobs), tuple(pairs), tuple(left_out))


def _task_file(definition: Definition, workload: Workload, others: Sequence[Workload]) -> Path:
    text = task_text(definition, workload, others)
    name = re.sub(r"[^\w=+-]+", "_", f"{definition.name}-{workload.label}")[:120]
    place = resources.home() / "cache" / "definitions" / content_hash(text) / f"{name}.py"
    if not place.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return place
