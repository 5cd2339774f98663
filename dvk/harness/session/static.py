"""What a candidate's text says before it runs. Reads words; executes and parses nothing, so no text can hurt the parent."""

from __future__ import annotations

import re

_CPP = re.compile(r"\bctypes\b|\bcpp_sources\b|\bcpp_extension\b")

MAX_SOURCE_BYTES = 4 << 20
"""Longer texts are refused: nobody writes them, and they cost every stage."""

def calls_cpp(source: str) -> bool:
    """The candidate calls compiled C++ on the CPU rather than being plain PyTorch."""
    return bool(_CPP.search(source))


def refuse(source: str) -> str | None:
    """Why `source` is not worth a process; None when it is."""
    if not source.strip():
        return "the candidate is empty"
    if len(source.encode(errors="replace")) > MAX_SOURCE_BYTES:
        return f"the candidate is longer than {MAX_SOURCE_BYTES >> 20} MiB"
    if "ModelNew" not in source:
        return "the candidate defines no `ModelNew`"
    return None
