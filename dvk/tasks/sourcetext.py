"""How the text of a user's file is read: the same way by the parent and by the child."""

from __future__ import annotations

from pathlib import Path


def read_source(path: Path) -> str:
    """The text of a source file, line ends as `\\n`, without a byte order mark.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read, or is not UTF-8.
    """
    return path.read_text(encoding="utf-8-sig")
