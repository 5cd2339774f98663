"""Folders of definitions, workloads and solutions, as both projects lay them out.

FlashInfer-Bench   definitions/**/NAME.json, workloads/**/*.jsonl (traces without a solution), solutions/**/*.json, traces/, blob/
SOL-ExecBench      a folder a problem: definition.json, workload.jsonl, solution*.json
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dvk.errors import UsageError
from dvk.interop.flashinfer.definition import Definition, read_definition
from dvk.interop.flashinfer.fields import Fields, read_json, read_lines
from dvk.interop.flashinfer.solution import Solution, UnsupportedSolution, read_solution
from dvk.interop.flashinfer.workload import Workload, read_workload

DEFINITIONS, WORKLOADS, SOLUTIONS, TRACES = "definitions", "workloads", "solutions", "traces"
DEFINITION, WORKLOAD = "definition.json", "workload.jsonl"
"""Files of a problem of SOL-ExecBench."""


@dataclass
class Problem:
    """A definition with its workloads, or why it cannot be used.

    Attributes:
        root: folder that paths of stored inputs start from.
        errors: of its definition, or of single workloads.
    """

    name: str
    root: Path
    path: Path
    definition: Definition | None = None
    workloads: list[Workload] = field(default_factory=list)
    errors: list[UsageError] = field(default_factory=list)


@dataclass
class Dataset:
    """The problems of a folder by the names of their definitions, and the files of their solutions."""

    root: Path
    problems: dict[str, Problem]
    solution_files: list[Path]

    def one(self, name: str, asked_by: str) -> tuple[Definition, list[Workload]]:
        """A definition with its workloads.

        Args:
            asked_by: names what asks for it, in messages.

        Raises:
            UsageError: it is missing, it or a workload cannot be used, or it has no workload.
        """
        problem = self.problems.get(name)
        if problem is None:
            known = ", ".join(list(self.problems)[:5])
            raise UsageError(
                f"{asked_by} is of the definition `{name}`, which `{self.root}` does not have",
                f"it has {known or 'none'}",
            )
        if problem.errors:
            raise problem.errors[0]
        assert problem.definition is not None, "without an error it was read"
        if not problem.workloads:
            raise UsageError(
                f"definition `{name}` has no workload", "give it sizes and inputs in a workload"
            )
        return problem.definition, problem.workloads

    def solutions(self, files: Sequence[Path], left_out: list[str]) -> list[Solution]:
        """The solutions of files; of the data set if there are none. A definition's file has those of its definition.

        Args:
            left_out: receives why solutions of the data set are not judged: their language or binding is not supported.

        Raises:
            UsageError: one cannot be read, or two have one name; a file's, or all of the data set, are not supported.
        """
        found: list[Solution] = []
        unsupported: list[UnsupportedSolution] = []
        for path in files or self.solution_files:
            value = read_json(path)
            if not files and len(self.problems) == 1 and self._is_of_another(value):
                continue
            try:
                found.append(read_solution(value, f"`{path}`"))
            except UnsupportedSolution as error:
                unsupported.append(error)
        if unsupported and (files or not found):
            raise unsupported[0]
        left_out += [error.message for error in unsupported]
        names = [solution.name for solution in found]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"two solutions are called `{twice[0]}`", "rename one of them")
        return found

    def _is_of_another(self, value: Any) -> bool:
        """Whether a solution's JSON names a definition that is not among the problems."""
        name = value.get("definition") if isinstance(value, dict) else None
        return isinstance(name, str) and name not in self.problems


def is_dataset(folder: Path) -> bool:
    """Whether a folder has the layout of one of the projects."""
    return folder.is_dir() and (
        _is_traced(folder)
        or (folder / DEFINITION).is_file()
        or next(_problem_folders(folder), None) is not None
    )


def is_definition(path: Path) -> bool:
    """Whether a path is meant as a definition's file."""
    return path.suffix == ".json"


def _is_traced(folder: Path) -> bool:
    """Whether it has FlashInfer-Bench's sub-folders."""
    defined = folder / DEFINITIONS
    return defined.is_dir() and ((folder / WORKLOADS).is_dir() or any(defined.rglob("*.json")))


def read_dataset(path: Path) -> Dataset:
    """The problems of a folder, or the one of a definition's file, whose folder has its workloads.

    Raises:
        UsageError: nothing there, two definitions of one name, or a file of workloads or an undefined definition that cannot be read.
    """
    if path.is_dir():
        if _is_traced(path):
            return _traced(path)
        folders = [path] if (path / DEFINITION).is_file() else list(_problem_folders(path))
        if not folders:
            raise UsageError(
                f"`{path}` has no definitions", f"expected {DEFINITIONS}/**/*.json or {DEFINITION}"
            )
        return _of_folders(path, folders)
    root = next((p.parent for p in path.resolve().parents if p.name == DEFINITIONS), None)
    if root is not None:
        whole = _traced(root)
        name = read_definition(read_json(path), f"`{path}`").name
        whole.problems = {name: whole.problems[name]}
        return whole
    return _of_folders(path.parent, [path.parent], path.name)


def _problem_folders(folder: Path) -> Iterator[Path]:
    return (path.parent for path in sorted(folder.rglob(DEFINITION)))


def _of_folders(root: Path, folders: Sequence[Path], name: str = DEFINITION) -> Dataset:
    problems: dict[str, Problem] = {}
    solutions: list[Path] = []
    for folder in folders:
        problem = _defined(folder / name, folder, problems)
        lines = folder / WORKLOAD
        if lines.is_file() and problem.definition is not None:
            for number, value in read_lines(lines):
                _add(problem, value, f"`{lines}` line {number}")
        solutions += sorted(folder.glob("solution*.json"))
    return Dataset(root, problems, solutions)


def _traced(root: Path) -> Dataset:
    problems: dict[str, Problem] = {}
    for path in sorted((root / DEFINITIONS).rglob("*.json")):
        _defined(path, root, problems)
    for path in sorted((root / WORKLOADS).rglob("*.jsonl")):
        for number, value in read_lines(path):
            where = f"`{path}` line {number}"
            name = Fields(value, where).text("definition")
            if name not in problems:
                raise UsageError(
                    f"{where} is of the definition `{name}`, which `{root}` does not have",
                    f"put it into {DEFINITIONS}/, or remove the line",
                )
            if problems[name].definition is not None:
                _add(problems[name], value, where)
    return Dataset(root, problems, sorted((root / SOLUTIONS).rglob("*.json")))


def _defined(path: Path, root: Path, problems: dict[str, Problem]) -> Problem:
    """The problem of a definition's file, entered among the others."""
    value = read_json(path)
    said = value.get("name") if isinstance(value, dict) else None
    name = said if isinstance(said, str) and said else path.stem
    if name in problems:
        raise UsageError(
            f"`{problems[name].path}` and `{path}` define `{name}`", "rename one of them"
        )
    problem = problems[name] = Problem(name, root, path)
    try:
        problem.definition = read_definition(value, f"`{path}`")
    except UsageError as error:
        problem.errors.append(error)
    return problem


def _add(problem: Problem, value: Any, where: str) -> None:
    """Add a workload, or its error: the object itself, or a trace that holds it."""
    assert problem.definition is not None
    try:
        fields = Fields(value, where)
        held = fields.mapping("workload") if "workload" in fields.value else fields.value
        workload = read_workload(held, problem.definition, problem.root, where)
        if workload.uuid in {one.uuid for one in problem.workloads}:
            raise fields.error(f"has the uuid `{workload.uuid}` again", "give it another one")
        problem.workloads.append(workload)
    except UsageError as error:
        problem.errors.append(error)
