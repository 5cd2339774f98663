"""Reading of a user's file: the same in the parent and the child."""

from __future__ import annotations

from pathlib import Path


def read_source(path: Path) -> str:
    """Return the text of a source file, with line ends as `\\n`, without a byte order mark.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read, or is not UTF-8.
    """
    return path.read_text(encoding="utf-8-sig")
