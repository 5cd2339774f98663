"""Suites: the tasks of a folder with its levels, of another benchmark's checkout, or of a published table."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dvk import crashes
from dvk.errors import UsageError
from dvk.interop.kernelbench.problems import problems as rows_of_table
from dvk.pipelines.eval import layouts
from dvk.runs import RunFolder

INDEX = "index.json"
"""In a folder of tasks: a list of objects with `name` and whatever tasks are grouped by (level, category); perhaps with `launches`."""
LAUNCHES = "launches"
FOLDER = "tasks"
"""Subfolder of a run for tasks that do not lie in files of KernelBench's format."""
TABLES = (".parquet", ".jsonl", ".json")


@dataclass(frozen=True)
class SuiteTask:
    """A task to play.

    Attributes:
        name: of its file; with its folder's if several share it.
        path: its file; for one with a `source`, the file it came from.
        groups: level, category, … by dimension.
        source: its text, if its file needs rewriting before it is played.
        error: the reason why it cannot be played.
        launches: how often a model makes its call; None where nothing was counted.
    """

    name: str
    path: Path
    groups: dict[str, str] = field(default_factory=dict)
    source: str | None = None
    error: str | None = None
    launches: float | None = None

    @property
    def number(self) -> int | None:
        """KernelBench's problem_id: the name's first number."""
        match = re.match(r"(\d+)_", self.name.rpartition("/")[2])
        return int(match[1]) if match else None


def read(suite: Path, only: Sequence[str] = (), found: Sequence[SuiteTask] = ()) -> list[SuiteTask]:
    """The problems of a folder, a checkout or a table, by name; files that begin with `_` are skipped.

    Args:
        only: names to keep; empty keeps all.
        found: the tasks, where the folder holds something else than task files.

    Raises:
        UsageError: nothing there, no task in it, an index or a table that cannot be read, or an unknown name in `only`.
    """
    if found:
        found = list(found)
    elif suite.is_file() and suite.suffix in TABLES:
        found = [
            SuiteTask(p.name, suite, {"level": p.level or suite.stem}, p.source)
            for p in rows_of_table(suite)
        ]
    elif suite.is_dir():
        found = list(_folder(suite))
    else:
        raise UsageError(
            f"no such folder: `{suite}`",
            "give a folder of task files, e.g. data/tasks/examples, or a .parquet of problems",
        )
    if not found:
        raise UsageError(
            f"no task files in `{suite}`", "task files are Python files in KernelBench's format"
        )
    found = _distinct(found)
    unknown = set(only) - {p.name for p in found}
    if unknown:
        raise UsageError(f"no task `{min(unknown)}` in `{suite}`", "name files without .py")
    return [p for p in found if not only or p.name in only]


def with_sources_on_disk(problems: Sequence[SuiteTask], run: RunFolder) -> list[SuiteTask]:
    """The same with every source in a file of the run."""
    result = []
    for problem in problems:
        if problem.source is not None:
            path = run.write_text(f"{FOLDER}/{problem.name}.py", problem.source)
            problem = replace(problem, path=path, source=None)
        result.append(problem)
    return result


def _folder(suite: Path) -> Iterator[SuiteTask]:
    folder = layouts.root(suite)
    groups, launches = _index(folder)
    for path in sorted(folder.rglob("*.py")):
        own = (path.parent / layouts.ROBUST).is_file()
        if path.name.startswith("_") or (own and path.name != layouts.ROBUST):
            continue
        name, source, kind, error = path.stem, None, "level", None
        try:
            text = path.read_text(encoding="utf-8")
            if own:
                name, kind, source = (
                    path.parent.name,
                    "",
                    layouts.from_settings(text, layouts.settings(path.parent)),
                )
            elif layouts.has_tests(text):
                kind, source = "category", layouts.from_tests(name, text)
        except Exception as error_found:  # noqa: BLE001 - whatever is wrong with a file, the others are played
            expected = isinstance(
                error_found, (OSError, ValueError)
            )  # UnicodeDecodeError and JSONDecodeError are ValueErrors
            error = (
                str(error_found) if expected else crashes.crashed(error_found, "reading it").message
            )
        group = {kind: path.parent.name} if kind and path.parent != folder else {}
        of_index = {**group, **groups.get(name, {})}
        yield SuiteTask(name, path, of_index, source, error, launches.get(name))


def _index(folder: Path) -> tuple[dict[str, dict[str, str]], dict[str, float]]:
    """What the index groups tasks by, and the launches that it counts."""
    index = folder / INDEX
    if not index.is_file():
        return {}, {}
    try:
        rows: list[dict[str, Any]] = json.loads(index.read_text(encoding="utf-8"))
        return (
            {
                row["name"]: {k: v for k, v in row.items() if isinstance(v, str) and k != "name"}
                for row in rows
            },
            {row["name"]: float(row[LAUNCHES]) for row in rows if LAUNCHES in row},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"cannot read `{index}`: {error}", "it must be a list of objects with a `name`"
        ) from None


def _distinct(problems: Sequence[SuiteTask]) -> list[SuiteTask]:
    """Names that several share become `folder/name`, or, of rows of a table, `name_2` and so on."""
    often = Counter(p.name for p in problems)
    result, seen = [], Counter[str]()
    for problem in problems:
        name = problem.name
        if often[name] > 1:
            level = (
                problem.groups.get("level")
                or problem.groups.get("category")
                or problem.path.parent.name
            )
            name = f"{level}/{name}"
            seen[name] += 1
            name += f"_{seen[name]}" if seen[name] > 1 else ""
        result.append(replace(problem, name=name))
    return result
