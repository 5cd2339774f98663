"""Names of files for the names in a data set, which may hold any characters and may be equal."""

from __future__ import annotations

import re


def file_name(text: str) -> str:
    """The text as one part of a path, neither hidden nor a parent folder: `../a b` → `_a_b`."""
    return re.sub(r"[^\w=+.-]+", "_", text).lstrip(".") or "_"


def distinct(name: str, taken: set[str]) -> str:
    """The name, or if it is taken the first free one of `name_2`, `name_3`, …; enters it into `taken`."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found
