"""Texts of exported files, with `<<name>>` where an export writes its own."""

from __future__ import annotations

import re
from pathlib import Path

HOLE = re.compile(r"<<(\w+)>>")


def filled(file: str, **values: object) -> str:
    """Return the text of a file with its holes filled.

    Args:
        file: the name of the exported file; its text lies here with `.txt` at the end.
        values: by the holes' names.

    Raises:
        KeyError: a hole has no value.
    """
    text = (Path(__file__).parent / f"{file}.txt").read_text(encoding="utf-8")
    return HOLE.sub(lambda hole: str(values[hole[1]]), text)
