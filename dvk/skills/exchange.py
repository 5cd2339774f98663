"""Skills in from files and out to files: Markdown, JSON lines, daVinci-kernel's snapshots.

Adding is all or nothing; importing takes what is valid and reports the rest.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dvk.errors import DvkError, LibraryError, UsageError
from dvk.skills.library import Library
from dvk.skills.results import Added
from dvk.skills.soundness import unknown_recipes

if TYPE_CHECKING:
    from dvk.records import Skill

_SOURCES = "give a folder of skill files, a JSONL file or a daVinci-kernel checkpoint"
_BATCH = 1000
"""Skills of one import transaction: about a second, so that other writers get their turn."""
_COMPACT_FROM = 1000
"""Imports of at least this many merge the search index at the end; smaller ones leave that to SQLite."""


@dataclass
class Imported:
    """Counts of an import."""

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Names that the library already had and keeps."""
    problems: list[str] = field(default_factory=list)
    """Unreadable entries, each as `file:line: why`."""


def add(path: Path | None, files: Sequence[Path], replace: bool, recipes: Collection[str]) -> Added:
    """Store the skills in Markdown `files`, all or none.

    Args:
        recipes: the names that a skill may execute.

    Raises:
        LibraryError: a malformed file, an unknown recipe, or a taken name.
    """
    from dvk.skills import markdown

    skills = [
        markdown.read(file).model_copy(update={"provenance": {"source": "user"}}) for file in files
    ]
    names = [skill.name for skill in skills]
    for file, name in zip(files, names):
        if names.count(name) > 1:
            raise LibraryError(f"{file}: `{name}` is given twice", "name each skill once")
    for file, skill in zip(files, skills):
        if unknown := unknown_recipes(skill, recipes):
            raise LibraryError(f"{file}: {unknown[0]}", f"choose of {', '.join(sorted(recipes))}")
    with Library.open(path, create=True) as library:
        return library.add_all(skills, taken="replace" if replace else "refuse")


def import_from(path: Path | None, source: Path, replace: bool) -> Imported:
    """Store every readable skill of a JSONL file, a Markdown file, a folder of Markdown files or of such folders, or a checkpoint or run
    of daVinci-kernel.

    Raises:
        UsageError: `source` is none of these.
        LibraryError: nothing in it could be read.
    """
    skills, problems = _read(source)
    if problems and not skills:
        raise LibraryError(f"nothing to import from `{source}`: {problems[0]}", _SOURCES)
    done = Imported(problems=problems)
    waiting = iter(skills)
    with Library.open(path, create=True) as library:
        while batch := list(islice(waiting, _BATCH)):
            step = library.add_all(batch, taken="replace" if replace else "keep")
            done.added += step.added
            done.replaced += step.replaced
            done.kept += step.kept
        if len(done.added) + len(done.replaced) >= _COMPACT_FROM:
            library.compact()
    return done


def export_to(
    path: Path | None,
    target: Path,
    form: Literal["markdown", "jsonl", "snapshot"] | None,
    replace: bool,
    step: int = 0,
) -> int:
    """Write all skills to a folder of Markdown files, to one JSONL file, or as a snapshot of daVinci-kernel's training; returns how many.

    Args:
        path: the library.
        target: folder or file; `form` None is detected from its ending.
        form: markdown, jsonl, or snapshot: `target/global_step_STEP.jsonl`, which its training starts from.
        step: of the snapshot.
        replace: overwrite files that exist.

    Raises:
        UsageError: the target exists, or cannot be written.
    """
    from dvk.skills import jsonl, markdown, snapshots

    form = form or ("jsonl" if target.suffix in (".jsonl", ".json") else "markdown")
    with Library.open(path) as library:
        skills = library.list()
    if form == "snapshot":
        target, form = target / snapshots.name(step), "jsonl"
    if form == "jsonl":
        texts = {target: "".join(jsonl.render(skills))}
    else:
        texts = {target / f"{skill.name}.md": markdown.render(skill) for skill in skills}
    present = [file for file in texts if file.exists()]
    if present and not replace:
        raise UsageError(f"`{present[0]}` exists", "choose another place, or use --replace")
    try:
        (target.parent if form == "jsonl" else target).mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            _write(file, text)
    except OSError as error:
        raise UsageError(
            f"cannot write to `{target}`: {error.strerror}", "choose a writable place"
        ) from None
    return len(skills)


def _read(source: Path) -> tuple[list[Skill], list[str]]:
    from dvk.skills import jsonl, markdown, snapshots

    if source.suffix in (".jsonl", ".json") and source.is_file():
        return jsonl.read(source)
    if source.is_dir():
        files = _markdown(source, "*.md")
        if not files and (snapshot := snapshots.find(source)) is not None:
            return jsonl.read(snapshot)
        files = files or _markdown(source, "*/*.md")
        if not files:
            raise UsageError(f"no .md files of skills in `{source}`", _SOURCES)
    elif source.suffix == ".md" and source.is_file():
        files = [source]
    else:
        what = "not a folder, .md or .jsonl file" if source.exists() else "no such file or folder"
        raise UsageError(f"{what}: `{source}`", _SOURCES)
    skills: dict[str, Skill] = {}
    problems: list[str] = []
    for file in files:
        try:
            skill = markdown.read(file, sections=False).model_copy(
                update={"provenance": {"source": "import"}}
            )
            if skill.name in skills:
                problems.append(f"{file}:2: `{skill.name}` again; the first one is kept")
            skills.setdefault(skill.name, skill)
        except DvkError as error:
            problems.append(error.message)
    return list(skills.values()), problems


def _markdown(folder: Path, pattern: str) -> list[Path]:
    """Files that may be skills, without READMEs and hidden ones."""
    files = sorted(
        file for file in folder.glob(pattern) if file.is_file() and file.name != "README.md"
    )
    return [
        file
        for file in files
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]


def _write(file: Path, text: str) -> None:
    """Atomic write: to a temporary file, then renamed."""
    import tempfile

    handle, aside = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, file)
    except BaseException:  # an interrupt, too, must not leave a file
        os.unlink(aside)
        raise


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
