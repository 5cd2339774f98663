"""Folders of definitions as folders of task files, and the other way."""

from __future__ import annotations

from pathlib import Path

from dvk import backends
from dvk.agents.preparing import prepare
from dvk.config import Config
from dvk.errors import DvkError, UsageError
from dvk.interop.flashinfer.dataset import read_dataset
from dvk.interop.flashinfer.definition import read_definition
from dvk.interop.flashinfer.file_names import distinct, file_name
from dvk.interop.flashinfer.of_tasks import NotDefinable, definition_of
from dvk.interop.flashinfer.task_text import task_text
from dvk.interop.flashinfer.trace import ResultsFolder
from dvk.interop.flashinfer.workload import read_workload


def write_tasks(source: Path, folder: Path, left_out: list[str]) -> int:
    """Write a task file for each workload, in a sub-folder by definition; returns how many. Equal names are numbered."""
    taken = set[str]()
    for problem in read_dataset(source).problems.values():
        left_out += [error.message for error in problem.errors]
        if problem.definition is None:
            continue
        place = folder / file_name(problem.name)
        place.mkdir(parents=True, exist_ok=True)
        for workload in problem.workloads:
            name = file_name(f"{problem.name}-{workload.label}")[:120]
            path = distinct(str(place / name), taken)
            text = task_text(problem.definition, workload, problem.workloads)
            Path(f"{path}.py").write_text(text, encoding="utf-8")
    return len(taken)


def write_definitions(source: Path, folder: Path, left_out: list[str]) -> int:
    """Write a definition with a workload for each task file, which is captured in the sandbox; returns how many.

    Raises:
        UsageError: there are no task files.
    """
    files = [source] if source.is_file() else sorted(source.rglob("*.py"))
    files = [path for path in files if not path.name.startswith("_")]
    if not files:
        raise UsageError(f"no task files in `{source}`", "give a folder of Python files")
    results, taken = ResultsFolder(folder), set[str]()
    device = backends.default_device()
    for path, found in zip(files, prepare(files, device, backends.default(device), Config())):
        try:
            if isinstance(found, DvkError):
                raise NotDefinable(found.message)
            value, call = definition_of(found)
            if value["name"] in taken:
                raise NotDefinable(f"another one is called `{value['name']}`")
            definition = read_definition(value, f"`{path}`")
            workload = read_workload(call, definition, source, f"`{path}`")
        except (NotDefinable, UsageError) as error:
            said = error.message if isinstance(error, UsageError) else str(error)
            left_out.append(f"`{path}`: {said}")
            continue
        results.add_problem(definition, [workload], source)
        taken.add(definition.name)
    return len(taken)
