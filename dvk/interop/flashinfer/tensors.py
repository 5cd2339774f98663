"""Stored inputs: safetensors files, read by their header alone; and a place that isolated processes may read them from.

A file is eight bytes (length of the header, little-endian), a JSON header {key: {dtype, shape, data_offsets}}, then the data.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from dvk import resources
from dvk.interop.flashinfer.fields import Fields
from dvk.records import content_hash

NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
"""torch's dtype → the file's."""
METADATA = "__metadata__"
"""A header's key that is no tensor."""
ENTRY: dict[str, type] = {"shape": list, "dtype": str, "data_offsets": list}
"""What a header says of a tensor."""
MAX_HEADER = 100 << 20
"""Longest header, in bytes, as the format's own reader has it."""


def check_stored(path: Path, key: str, shape: tuple[int, ...], dtype: str, fields: Fields) -> None:
    """Refuse stored data that is missing, or of another shape or dtype.

    Raises:
        UsageError: says which.
    """
    if not path.is_file():
        raise fields.error(f"is stored in `{path}`, which is missing", "fetch the data set's blobs")
    try:
        header = _header(path)
    except (OSError, ValueError, RecursionError) as error:
        raise fields.error(
            f"is stored in `{path}`, which is no safetensors file: {error}"
        ) from None
    entry = header.get(key) if key != METADATA else None
    if not isinstance(entry, dict):
        raise fields.error(f"is stored as `{key}`, which `{path}` does not have")
    if missing := [name for name, kind in ENTRY.items() if not isinstance(entry.get(name), kind)]:
        raise fields.error(f"is stored as `{key}`, which has no valid `{missing[0]}` in `{path}`")
    if tuple(entry["shape"]) != shape:
        raise fields.error(f"is stored as {list(entry['shape'])}, and its axes say {list(shape)}")
    if entry["dtype"] != NAMES[dtype]:
        raise fields.error(f"is stored as {entry['dtype']}, and the definition says {dtype}")


def _header(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= MAX_HEADER:
            raise ValueError("its header has no valid length")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    return header


def readable(path: Path) -> Path:
    """The same file below `$DVK_HOME/cache`, which isolated processes may read; a link where the disk is the same, else a copy."""
    found = path.resolve()
    facts = found.stat()
    name = content_hash(str(found), str(facts.st_size), str(facts.st_mtime_ns))
    place = resources.home() / "cache" / "stored_inputs" / f"{name}.safetensors"
    if not place.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_suffix(f".{os.getpid()}")
        try:
            os.link(found, aside)
        except OSError:
            shutil.copyfile(found, aside)
        os.replace(aside, place)
    return place
