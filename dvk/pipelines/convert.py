"""`dvk convert`: training data and problems between dvk's files and those of daVinci-kernel and Dr.Kernel.

    examples    ours (JSONL), or any published format   →   ours, combined and coldstart (parquet), seed, skills, selection (JSONL)
    problems    a folder of task files, or a table      →   a folder of task files, rl (parquet)

Nothing is executed: an imported example stays unverified. Rows that cannot be parsed, or do not fit the target's format, are
left out and reported.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dvk import tasks
from dvk.agents.task_context import TaskContext
from dvk.config import AgentsConfig
from dvk.errors import DvkError, UsageError
from dvk.interop.davinci import formats
from dvk.interop.davinci.dialect import DaVinciDialect
from dvk.interop.davinci.formats import rl, writing
from dvk.interop.kernelbench.problems import problems as problems_of
from dvk.learn import examples as ours

OURS, TASKS, RL = "examples", "tasks", "rl"
FORMS = (OURS, *writing.WRITERS, TASKS, RL)
_PARQUET = (RL, *writing.PARQUET)
_SUFFIX = {
    form: "" if form == TASKS else ".parquet" if form in _PARQUET else ".jsonl" for form in FORMS
}


@dataclass
class Converted:
    """Counts of a conversion."""

    number: int = 0
    form: str = ""
    problems: list[str] = field(default_factory=list)
    """Rows left out, each with the reason."""


def convert(
    source: Path, target: Path, form: str | None = None, replace: bool = False
) -> Converted:
    """Convert `source` to `target`.

    Args:
        source: a file of examples, a table of problems or a folder of task files.
        target: a file, or for tasks a folder.
        form: one of FORMS; None is detected from the ending of `target`, and for parquet from `source`.
        replace: overwrite a file that exists.

    Raises:
        UsageError: nothing to read, an unknown form, an ending that contradicts it, an existing target, or no right to write there.
        MachineError: parquet, and pyarrow is not installed.
    """
    if not source.exists():
        raise UsageError(
            f"no such file or folder: `{source}`",
            "give examples (.jsonl, .parquet) or a folder of task files",
        )
    form = form or (
        TASKS
        if not target.suffix
        else RL
        if target.suffix == ".parquet" and source.is_dir()
        else "combined"
        if target.suffix == ".parquet"
        else OURS
    )
    if form not in FORMS:
        raise UsageError(f"unknown form: `{form}`", f"choose one of {', '.join(FORMS)}")
    if target.suffix != _SUFFIX[form]:
        ending = f"a name that ends in {_SUFFIX[form]}" if _SUFFIX[form] else "a folder"
        raise UsageError(f"`{form}` is not written to `{target}`", f"give {ending}")
    done = Converted(form=form)
    try:
        if target.exists() and target.is_dir() != (form == TASKS):
            raise UsageError(
                f"`{target}` is a {'folder' if target.is_dir() else 'file'}", "choose another place"
            )
        if target.exists() and not replace and (form != TASKS or any(target.iterdir())):
            raise UsageError(f"`{target}` exists", "choose another place, or use --replace")
        done.number = (
            write_tasks(source, target)
            if form == TASKS
            else write_file(source, target, form, done.problems)
        )
    except OSError as error:
        raise UsageError(
            f"cannot write `{target}`: {error.strerror or error}", "choose another place"
        ) from None
    if not done.number:
        why = f": {done.problems[0]}" if done.problems else ""
        raise UsageError(
            f"nothing in `{source}` can be written as {form}{why}", "choose another --to"
        )
    return done


def write_file(source: Path, target: Path, form: str, problems: list[str]) -> int:
    """Write `target` to a temporary file and rename it unless it is empty, so that an existing one stays; returns how many."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".dvk_", dir=target.parent) as folder:
        aside = Path(folder) / target.name
        if form == RL:
            number = rl.write(aside, rl_rows(source, problems))
        elif form == OURS:
            number = ours.write(aside, formats.any_examples(source, problems))
        else:
            number = writing.write(aside, form, formats.any_examples(source, problems), problems)
        if number:
            os.replace(aside, target)
    return number


def write_tasks(source: Path, folder: Path) -> int:
    """Write a file for every problem of a table, in a sub-folder by level; returns how many. Rows with equal names are numbered."""
    number, taken = 0, set()
    for problem in problems_of(source):
        place = folder / problem.level if problem.level else folder
        place.mkdir(parents=True, exist_ok=True)
        name, again = problem.name, 1
        while (place / name) in taken:
            again += 1
            name = f"{problem.name}_{again}"
        taken.add(place / name)
        (place / f"{name}.py").write_text(problem.source.rstrip() + "\n", encoding="utf-8")
        number += 1
    return number


def rl_rows(source: Path, problems: list[str]) -> Iterator[rl.ProblemRow]:
    """The problems of a folder of task files, or of a table, each with the first question to daVinci-kernel's policy."""
    if source.is_file():
        for problem in problems_of(source):
            yield row(problem.name, problem.level or "", problem.source, "Model")
        return
    files = [path for path in sorted(source.rglob("*.py")) if not path.name.startswith("_")]
    if not files:
        raise UsageError(
            f"no task files in `{source}`", "task files are Python files in KernelBench's format"
        )
    for path in files:
        try:
            task = tasks.unexamined(str(path))
        except DvkError as error:
            problems.append(error.message)
            continue
        if "def get_inputs" not in task.source or task.kind != "module":
            problems.append(
                f"`{path}` is no problem in KernelBench's format: a class and get_inputs()"
            )
            continue
        yield row(
            path.stem, path.parent.name if path.parent != source else "", task.source, task.entry
        )


def row(name: str, level: str, source: str, entry: str) -> rl.ProblemRow:
    """One problem with its question."""
    task = tasks.of_text(source, entry, name)
    asked = DaVinciDialect().policy(TaskContext(task, None, "triton"), (), AgentsConfig())
    return rl.ProblemRow(
        name, level.removeprefix("level"), source, str(asked.messages[0]["content"]), entry
    )
