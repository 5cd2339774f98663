"""`dvk convert`: training data and problems between dvk's files and those of daVinci-kernel and Dr.Kernel.

    examples    ours (JSONL), or any published format   →   ours, combined and coldstart (parquet), seed, skills, selection (JSONL)
    problems    a folder of task files, or a table      →   a folder of task files, rl (parquet)
    problems    a folder of task files, or generated:N  →   prompts (parquet) for TRL, verl and SkyRL, harbor (folder of task trees)
    definitions a folder of FlashInfer-Bench's layout   →   a folder of task files, one a workload
    problems    a folder of task files                  →   flashinfer (folder of definitions and workloads)

Nothing is executed but in the last one, which captures each task in the sandbox: an imported example stays unverified. Rows that cannot be
parsed, or do not fit the target's format, are left out and reported.
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
from dvk.interop import harbor, prompt_rows
from dvk.interop.davinci import formats
from dvk.interop.davinci.dialect import DaVinciDialect
from dvk.interop.davinci.formats import rl, writing
from dvk.interop.flashinfer import conversion as definitions
from dvk.interop.flashinfer.dataset import is_dataset
from dvk.interop.kernelbench.problems import problems as problems_of
from dvk.interop.problem_sets import ENDLESS, GENERATED, Part, Problem, ProblemSet
from dvk.learn import examples as ours
from dvk.records import BackendName, Device

OURS, TASKS, RL, PROMPTS, HARBOR = "examples", "tasks", "rl", "prompts", "harbor"
FLASHINFER = "flashinfer"
FORMS = (OURS, *writing.WRITERS, TASKS, RL, PROMPTS, HARBOR, FLASHINFER)
_PARQUET = (RL, PROMPTS, *writing.PARQUET)
_FOLDERS = (TASKS, HARBOR, FLASHINFER)
_SUFFIX = {
    form: "" if form in _FOLDERS else ".parquet" if form in _PARQUET else ".jsonl" for form in FORMS
}


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """What `prompts` and `harbor` ask for: see `ProblemSet`."""

    split: Part = "any"
    seed: int = 0
    backend: BackendName = "auto"
    device: Device | None = None


@dataclass
class Converted:
    """Counts of a conversion."""

    number: int = 0
    form: str = ""
    problems: list[str] = field(default_factory=list)
    """Rows left out, each with the reason."""


def convert(
    source: Path,
    target: Path,
    form: str | None = None,
    replace: bool = False,
    options: PromptOptions = PromptOptions(),
) -> Converted:
    """Convert `source` to `target`.

    Args:
        source: a file of examples, a table of problems, a folder of task files or `generated:COUNT`.
        target: a file, or for tasks and harbor a folder.
        form: one of FORMS; None is detected from the ending of `target`, and for parquet from `source`.
        replace: overwrite a file that exists.
        options: for prompts and harbor.

    Raises:
        UsageError: nothing to read, an unknown form, an ending that contradicts it, an existing target, or no right to write there.
        MachineError: parquet, and pyarrow is not installed.
    """
    generated = str(source).startswith(f"{GENERATED}:") and form in (PROMPTS, HARBOR)
    if not source.exists() and not generated:
        raise UsageError(
            f"no such file or folder: `{source}`",
            "give examples (.jsonl, .parquet) or a folder of task files",
        )
    form = form or _form(source, target)
    if form not in FORMS:
        raise UsageError(f"unknown form: `{form}`", f"choose one of {', '.join(FORMS)}")
    if target.suffix != _SUFFIX[form]:
        ending = f"a name that ends in {_SUFFIX[form]}" if _SUFFIX[form] else "a folder"
        raise UsageError(f"`{form}` is not written to `{target}`", f"give {ending}")
    done = Converted(form=form)
    try:
        if target.exists() and target.is_dir() != (form in _FOLDERS):
            raise UsageError(
                f"`{target}` is a {'folder' if target.is_dir() else 'file'}", "choose another place"
            )
        if target.exists() and not replace and (form not in _FOLDERS or any(target.iterdir())):
            raise UsageError(f"`{target}` exists", "choose another place, or use --replace")
        if form == TASKS and is_dataset(source):
            done.number = definitions.write_tasks(source, target, done.problems)
        elif form == FLASHINFER:
            done.number = definitions.write_definitions(source, target, done.problems)
        elif form == TASKS:
            done.number = write_tasks(source, target)
        elif form == HARBOR:
            done.number = harbor.write(target, asked(source, options, done.problems))
        else:
            done.number = write_file(source, target, form, done.problems, options)
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


def _form(source: Path, target: Path) -> str:
    """What the endings say."""
    if not target.suffix:
        return TASKS
    if target.suffix != ".parquet":
        return OURS
    return RL if source.is_dir() else "combined"


def asked(source: Path, options: PromptOptions, left_out: list[str]) -> Iterator[Problem]:
    """The tasks of a source with their questions.

    Raises:
        UsageError: see `ProblemSet`; the source never ends.
    """
    known = ProblemSet(
        str(source), seed=options.seed, backend=options.backend, device=options.device
    )
    left_out += known.left_out
    if known.count(options.split) == ENDLESS:
        raise UsageError(f"`{source}` never ends", f"write {GENERATED}:COUNT")
    return known.all(options.split)


def write_file(
    source: Path, target: Path, form: str, problems: list[str], options: PromptOptions
) -> int:
    """Write `target` to a temporary file and rename it unless it is empty, so that an existing one stays; returns how many."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".dvk_", dir=target.parent) as folder:
        aside = Path(folder) / target.name
        if form == RL:
            number = rl.write(aside, rl_rows(source, problems))
        elif form == PROMPTS:
            number = prompt_rows.write(aside, asked(source, options, problems))
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
