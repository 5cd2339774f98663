"""Files of rows: parquet through pyarrow, JSON lines through the standard library; one dict a row, streamed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from dvk.errors import MachineError, UsageError
from dvk.sandbox.wire import without_surrogates

BATCH_ROWS = 256
"""Rows decoded at a time: trajectories of 100 kB make 25 MB."""


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file.

    Raises:
        UsageError: missing, unreadable, or a line that is not a JSON object.
        MachineError: parquet, and pyarrow is not installed.
    """
    if not path.is_file():
        raise UsageError(f"no such file: `{path}`", "give a .parquet or .jsonl file")
    yield from _parquet(path) if path.suffix == ".parquet" else _json_lines(path)


Column: TypeAlias = "str | list[Any] | dict[str, Any]"
"""An arrow type by its alias, e.g. `large_string`; `[Column]` is a list of them, `{name: Column}` a struct."""


def write_parquet(path: Path, columns: Mapping[str, Column], rows: Iterable[dict[str, Any]]) -> int:
    """Write rows, to a temporary file and then renamed; returns how many.

    Args:
        columns: by name.
        rows: with these columns; written in row groups of the reading batch size.

    Raises:
        MachineError: pyarrow is not installed.
    """
    arrow, parquet = _pyarrow()
    schema = arrow.schema([(name, _type(arrow, kind)) for name, kind in columns.items()])
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    number = 0
    try:
        with parquet.ParquetWriter(aside, schema) as out:
            waiting = iter(rows)
            while batch := list(islice(waiting, BATCH_ROWS)):
                out.write_table(arrow.Table.from_pylist(batch, schema=schema))
                number += len(batch)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return number


def _type(arrow: ModuleType, kind: Column) -> Any:
    if isinstance(kind, dict):
        return arrow.struct([(name, _type(arrow, inner)) for name, inner in kind.items()])
    return arrow.list_(_type(arrow, kind[0])) if isinstance(kind, list) else getattr(arrow, kind)()


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    arrow, parquet = _pyarrow()
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=BATCH_ROWS):
            yield from batch.to_pylist()
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, OSError) as error:
        raise UsageError(
            f"cannot read `{path}`: {str(error).splitlines()[0]}", "give a complete parquet file"
        ) from None


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UsageError(
            f"cannot read `{path}`: {error.strerror}", "give a readable file"
        ) from None
    with stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise UsageError(
                    f"{path}:{number}: not JSON", "give a file with one JSON object a line"
                ) from None
            if not isinstance(row, dict):
                raise UsageError(
                    f"{path}:{number}: not a JSON object", "give a file with one JSON object a line"
                )
            yield without_surrogates(row) if b"\\ud" in line or b"\\uD" in line else row


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MachineError(
            "parquet files need pyarrow, which is not installed", "pip install 'dvk[formats]'"
        ) from None
    return pyarrow, pyarrow.parquet
