"""The functions that travel inside drop-ins, as text by name.

Read from their files, not from the imported functions: those need torch, whose import takes seconds, and whoever only
writes a drop-in does without.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

FILES = ("embedded.py", "rebuilt.py", "finite.py", "cuda_launch.py", "compact/frame.py")
PREFIX = "dvk_"


@cache
def texts() -> dict[str, str]:
    """Name → source text, ending in a newline, of every function that drop-ins may hold."""
    found: dict[str, str] = {}
    for name in FILES:
        text = (Path(__file__).parent / name).read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        found |= {node.name: "".join(lines[node.lineno - 1 : node.end_lineno]) for node in ast.parse(text).body
                  if isinstance(node, ast.FunctionDef) and node.name.startswith(PREFIX)}
    return found


def text(names: Sequence[str]) -> str:
    """The source of these functions, one below the other."""
    return "\n\n\n".join(texts()[name] for name in names)
