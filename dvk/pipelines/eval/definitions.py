"""Definitions of FlashInfer-Bench and SOL-ExecBench as a suite: a task a workload; winners as solutions, their verdicts as traces.

A definition's winners become one solution that picks the kernel by the sizes of a call; other sizes go to the reference code. The solution
as a whole is judged at each workload, and that is what its traces say. Workloads that count launches weight the gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk import backends, harness
from dvk.errors import UsageError
from dvk.harness.queue import JudgeQueue, default_contract
from dvk.interop.flashinfer import trace
from dvk.interop.flashinfer.candidate import candidate_text, solution_json
from dvk.interop.flashinfer.dataset import Dataset, read_dataset
from dvk.interop.flashinfer.definition import Definition
from dvk.interop.flashinfer.file_names import distinct, file_name
from dvk.interop.flashinfer.solution import Solution, read_solution
from dvk.interop.flashinfer.task_text import task_text
from dvk.interop.flashinfer.workload import Workload
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.rows import tries, winner
from dvk.pipelines.eval.suites import SuiteTask
from dvk.records import Candidate, Episode, Task, Verdict
from dvk.runs import RunFolder

RESULTS = "trace_set"
"""Subfolder of a run for its results in FlashInfer-Bench's layout."""


@dataclass(frozen=True)
class Called:
    """A workload that is a task of the suite."""

    definition: Definition
    workload: Workload


@dataclass
class DefinitionSuite:
    """A data set as tasks; `called` has the workload of each by the task's name."""

    dataset: Dataset
    tasks: list[SuiteTask]
    called: dict[str, Called]


def read(path: Path) -> DefinitionSuite:
    """The tasks of a data set.

    Raises:
        UsageError: see `read_dataset`; nothing in it can be played.
    """
    suite = DefinitionSuite(read_dataset(path), [], {})
    taken: set[str] = set()
    for problem in suite.dataset.problems.values():
        for number, error in enumerate(problem.errors):
            name = distinct(f"{_plain(problem.name)}-unread{number or ''}", taken)
            suite.tasks.append(SuiteTask(name, problem.path, error=error.message))
        definition = problem.definition
        if definition is None:
            continue
        labels = [workload.label for workload in problem.workloads]
        for workload in problem.workloads:
            label = workload.label
            if labels.count(label) > 1:
                label = f"{label}-{workload.uuid[:8]}"
            name = distinct(f"{_plain(problem.name)}-{_plain(label)}", taken)
            suite.tasks.append(
                SuiteTask(
                    name,
                    problem.path,
                    {"definition": problem.name, "op_type": definition.op_type},
                    task_text(definition, workload, problem.workloads),
                    launches=workload.launches,
                )
            )
            suite.called[name] = Called(definition, workload)
    if not suite.called:
        errors = [error for problem in suite.dataset.problems.values() for error in problem.errors]
        raise (
            errors[0]
            if errors
            else UsageError(
                f"no definition in `{path}` has a workload", "give sizes and inputs in workloads"
            )
        )
    return suite


def _plain(text: str) -> str:
    """A name for a file."""
    return file_name(text)[:100]


# ------------------------------------------------------------------ results


@dataclass(frozen=True)
class _Won:
    """The winner of one workload."""

    name: str
    called: Called
    task: Task
    candidate: Candidate
    speedup: float


def write(
    run: RunFolder,
    suite: DefinitionSuite,
    episodes: Sequence[Episode],
    again: Mapping[tuple[str, int], Verdict],
    chosen: Mapping[tuple[str, int], str],
    progress: Progress,
    judging: JudgeQueue[Any],
) -> dict[str, Any]:
    """Write definitions, workloads, solutions and traces below the run's folder; returns where they are, for the summary.

    Args:
        again: second verdicts by (task, sample).
        chosen: the candidate of each.
    """
    results = trace.ResultsFolder(run.path / RESULTS)
    won: dict[str, list[_Won]] = defaultdict(list)
    for one in _winners(suite, episodes, again, chosen):
        won[one.called.definition.name].append(one)
    for name, winners in won.items():
        definition = winners[0].called.definition
        problem = suite.dataset.problems[name]
        results.add_problem(definition, problem.workloads, problem.root)
        value = _solution(definition, winners)
        results.add_solution(definition, value)
        progress.stage(f"judging the solution of {name}")
        traces = list(_judged(definition, value, suite, episodes, judging))
        results.add_traces(definition, traces)
    return {"trace_set": str(results.root) if won else None, "num_solutions": len(won)}


def _winners(
    suite: DefinitionSuite,
    episodes: Sequence[Episode],
    again: Mapping[tuple[str, int], Verdict],
    chosen: Mapping[tuple[str, int], str],
) -> Iterator[_Won]:
    """Each workload's fastest right candidate, if it is faster than eager as fast_p counts it and has kernels or recipes."""
    for episode in episodes:
        called = suite.called.get(episode.task.name)
        if called is None:
            continue
        best: tuple[float, Candidate] | None = None
        for sample, turns in enumerate(tries(episode)):
            key = (episode.task.name, sample)
            turn = winner(turns, chosen.get(key))
            verdict = again.get(key) or (turn.verdict if turn is not None else None)
            if turn is None or turn.candidate is None or verdict is None or verdict.timing is None:
                continue
            if _is_unchanged(turn.candidate):
                continue
            speedup = verdict.timing.speedup.value
            if speedup > (best[0] if best is not None else 1.0):
                best = speedup, turn.candidate
        if best is not None:
            yield _Won(episode.task.name, called, episode.task, best[1], best[0])


def _is_unchanged(made: Candidate) -> bool:
    """Whether it is the composer's text without kernels or recipes: PyTorch does all the work, and a gain of it is noise."""
    return made.proposer == "composer" and not made.recipes and not made.schedule


def _solution(definition: Definition, winners: Sequence[_Won]) -> dict[str, Any]:
    """The solution of a definition's winners; of several with the same sizes, the faster one's kernels."""
    best: dict[tuple[int, ...], _Won] = {}
    for one in winners:
        sizes = tuple(one.called.workload.sizes[axis] for axis in definition.bindings)
        if sizes not in best or one.speedup > best[sizes].speedup:
            best[sizes] = one
    by_sizes = {sizes: (one.candidate.source, one.candidate.backend) for sizes, one in best.items()}
    labels = "; ".join(one.called.workload.label for one in best.values())
    return solution_json(
        f"dvk_{definition.name}",
        definition,
        by_sizes,
        winners[0].task.device,
        f"Kernels for {labels}",
    )


def _candidate(solution: Solution, definition: Definition) -> Candidate:
    """A solution as the judge's candidate. Its sources say the back end: in the candidate's text they may be escaped."""
    return Candidate(
        source=candidate_text(solution, definition),
        backend=backends.detect("\n".join(solution.sources.values())),
        proposer="user",
        title=solution.name,
    )


def _judged(
    definition: Definition,
    value: Mapping[str, Any],
    suite: DefinitionSuite,
    episodes: Sequence[Episode],
    judging: JudgeQueue[Any],
) -> Iterator[dict[str, Any]]:
    """The traces of a solution at every workload of its definition that was examined."""
    solution = read_solution(dict(value), "the solution")
    tasks = [
        (episode.task, suite.called[episode.task.name].workload)
        for episode in episodes
        if episode.task.name in suite.called
        and suite.called[episode.task.name].definition is definition
    ]
    candidate = _candidate(solution, definition)
    spec = harness.JudgeSpec(tier="search", contract=default_contract(tasks[0][0].device))
    for position, verdict in judging.map([(task, candidate) for task, _ in tasks], spec):
        made = trace.trace(definition.name, tasks[position][1], solution.name, verdict)
        if made is not None:
            yield made
