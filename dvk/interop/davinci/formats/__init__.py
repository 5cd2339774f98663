"""Published formats of training data, parsed into examples and, if the columns are known, written.

A format is a function from one row, a dict, to one example; it raises ValueError if the row is not one.
Imported examples were not executed here: they are `verified=False` until they are. Defects of the published sets
are not repaired silently: an unusable row is reported with its place and the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dvk import registry
from dvk.errors import UsageError
from dvk.interop import tables
from dvk.learn import examples
from dvk.learn.examples import Example

FORMATS = {
    "coldstart": "dvk.interop.davinci.formats.trajectories:coldstart",
    "seed": "dvk.interop.davinci.formats.trajectories:seed",
    "combined": "dvk.interop.davinci.formats.combined:example",
    "skills": "dvk.interop.davinci.formats.teachers:summary",
    "selection": "dvk.interop.davinci.formats.teachers:selection",
}
"""Name → function of one row."""


def detect(row: dict[str, Any]) -> str:
    """The format that a row's columns belong to.

    Raises:
        ValueError: to none.
    """
    columns = set(row)
    if "tool_call_raw" in columns:
        return "selection" if "bm25_candidates" in columns else "skills"
    if "messages" in columns:
        if "original_python_code" not in columns:
            return "combined"
        return "seed" if "round_speedups" in columns else "coldstart"
    raise ValueError(f"unknown columns: {', '.join(sorted(columns)[:8]) or 'none'}")


def any_examples(path: Path, problems: list[str]) -> Iterator[Example]:
    """The examples of a file, in dvk's own or a published format, detected from its columns.

    Args:
        path: `.jsonl` or `.parquet`; for dvk's own format also a folder.
        problems: receives `file:row: why` for every published row left out.

    Raises:
        UsageError: see `read` and `examples.read`.
    """
    if path.suffix == ".jsonl" or path.is_dir():
        number, line = next(examples.lines(examples.files(path)[0]), (1, b"{}"))
        if path.is_dir() or (b'"messages"' in line and b'"kind"' in line):
            examples.parse(line, f"{path}:{number}")
            yield from examples.read(path)
            return
    yield from read(path, problems=problems)


def read(path: Path, name: str = "auto", problems: list[str] | None = None) -> Iterator[Example]:
    """The examples of a published file, streamed.

    Args:
        path: `.parquet`, or `.jsonl` / `.json` with one object a line.
        name: one of FORMATS, `path/to/file.py:function`, or `auto` to detect from the first row's columns.
        problems: receives `file:row: why` for every row left out.

    Raises:
        UsageError: unreadable, of no known format, or without a single usable row.
        MachineError: parquet, and pyarrow is not installed.
    """
    problems = [] if problems is None else problems
    convert = None if name == "auto" else registry.resolve(name, FORMATS, "format")
    number = used = 0
    for number, row in enumerate(tables.rows(path), start=1):
        try:
            if convert is None:
                convert = registry.resolve(detect(row), FORMATS, "format")
            yield convert(row)
            used += 1
        except ValidationError as error:
            problems.append(f"{path}:{number}: {error.errors()[0]['msg']}")
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
    if not used:
        why = f"; the first: {problems[0]}" if problems else ""
        raise UsageError(
            f"no usable row among {number} in `{path}`{why}",
            f"name its format: one of {', '.join(FORMATS)}",
        )
