"""Whether a library's search index is whole."""

from __future__ import annotations

import sqlite3
from pathlib import Path


def index_is_whole(path: Path) -> bool:
    """SQLite's own checks of the file and of the index against the table; they raise or report when not."""
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO skills_fts(skills_fts, rank) VALUES ('integrity-check', 1)")
        return bool(connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok")
