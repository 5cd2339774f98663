"""Skills put into a library."""

from __future__ import annotations

from pathlib import Path

LINE = '{{"name": "{}", "description": "d", "scope": "general", "tags": ["a"], "content": "## Motivation\\nm", "verify_speedup": 1.5}}\n'


def put(file: Path, *names: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(LINE.format(name) for name in names))
    return file
