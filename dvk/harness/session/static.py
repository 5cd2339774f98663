"""Static checks of a candidate's text. Searches for words; executes and parses nothing, so no text can harm the parent."""

from __future__ import annotations

import re

_CPP = re.compile(r"\bctypes\b|\bcpp_sources\b|\bcpp_extension\b")

MAX_SOURCE_BYTES = 4 << 20
"""Longest text: longer ones have no use, and are costly at every stage."""


def calls_cpp(source: str) -> bool:
    """Whether the candidate calls compiled C++ on the CPU rather than being plain PyTorch."""
    return bool(_CPP.search(source))


def refuse(source: str) -> str | None:
    """Return why `source` is rejected before it gets a process; None if it is not."""
    if not source.strip():
        return "the candidate is empty"
    if len(source.encode(errors="replace")) > MAX_SOURCE_BYTES:
        return f"the candidate is longer than {MAX_SOURCE_BYTES >> 20} MiB"
    if "ModelNew" not in source:
        return "the candidate defines no `ModelNew`"
    return None
