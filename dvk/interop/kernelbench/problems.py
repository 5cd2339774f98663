"""Published tables of problems, a reference a row: KernelBench's dataset, and Dr.Kernel's and daVinci-kernel's RL and validation parquet.

    KernelBench   code, level, name, problem_id
    the other     reward_model {ground_truth: source, entry_point?}, extra_info {entry_point, level, module_name, uuid, problem_id?, …}

Structures may come nested or as JSON text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk.errors import UsageError
from dvk.interop import tables

ENTRY = "Model"


@dataclass(frozen=True)
class ReferenceProblem:
    """One reference.

    Attributes:
        name: letters, digits and underscores; rows of one table may share it.
        level: e.g. `level2`; letters, digits and underscores; None if the row has none.
        source: Python text with a class `Model`.
    """

    name: str
    level: str | None
    source: str


def problem(row: dict[str, Any], number: int = 0) -> ReferenceProblem:
    """One row.

    Args:
        row: columns as above.
        number: of the row, for one without a name.

    Raises:
        ValueError: not such a row.
    """
    if isinstance(row.get("code"), str):
        said = [str(row[key]) for key in ("problem_id", "name") if row.get(key) is not None]
        name = said[-1] if said and said[-1].startswith(f"{said[0]}_") else "_".join(said)
        return ReferenceProblem(
            _name(name) or f"row_{number}", _level(row.get("level")), row["code"]
        )
    reward, extra = _structure(row, "reward_model"), _structure(row, "extra_info")
    source = reward.get("ground_truth")
    if not isinstance(source, str) or not source.strip():
        raise ValueError("neither `code` nor `reward_model.ground_truth` holds a reference")
    said = [
        str(extra[key])
        for key in ("problem_id", "index", "module_name", "uuid")
        if extra.get(key) not in (None, "")
    ]
    entry = reward.get("entry_point") or extra.get("entry_point") or ENTRY
    return ReferenceProblem(
        _name("_".join(said[:2])) or f"row_{number}",
        _level(extra.get("level")),
        _named(source, str(entry)),
    )


def problems(path: Path) -> Iterator[ReferenceProblem]:
    """The problems of a `.parquet` or `.jsonl` file, streamed.

    Raises:
        UsageError: unreadable, or a row that is no problem.
        MachineError: parquet, and pyarrow is not installed.
    """
    for number, row in enumerate(tables.rows(path), start=1):
        try:
            yield problem(row, number)
        except ValueError as error:
            hint = "columns are code, level, name, problem_id, or reward_model and extra_info"
            raise UsageError(f"{path}:{number}: {error}", hint) from None


def _structure(row: dict[str, Any], key: str) -> dict[str, Any]:
    value = row.get(key)
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(f"`{key}` is text but not JSON") from None
    return dict(value) if isinstance(value, dict) else {}


def _name(text: str) -> str:
    """A safe name of a file or folder: no path separators; may be empty."""
    return re.sub(r"\W+", "_", text).strip("_")


def _level(value: Any) -> str | None:
    text = "" if value is None else _name(str(value))
    return f"level{text}" if re.fullmatch(r"\d+", text) else text or None


def _named(source: str, entry: str) -> str:
    """`source` with its entry renamed to KernelBench's name."""
    if entry == ENTRY or not entry.isidentifier():
        return source
    return f"{source.rstrip()}\n\n\n{ENTRY} = {entry}\n"
