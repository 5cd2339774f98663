"""What a candidate's text says before it runs: which back end it is for.

Reads words, not meaning; nothing is executed or parsed, so no text can hurt the parent.
"""

from __future__ import annotations

import re

from dvk.records import Backend

_CPP = re.compile(r"\bctypes\b|\bcpp_sources\b|\bcpp_extension\b")

MAX_SOURCE_BYTES = 4 << 20
"""Longer texts are refused: nobody writes them, and they cost every stage."""

_TRITON = re.compile(r"^\s*(?:import|from)\s+triton\b", re.MULTILINE)
_CUDA = re.compile(r"\bcuda_sources\b|__global__|\bCUDAExtension\b|\.cu['\"]")


def detect(source: str) -> Backend:
    """The back end of a candidate: `triton` when it imports it, `cuda` when it holds CUDA C++, else `cpp` (plain
    PyTorch included, which needs no compiler)."""
    if _TRITON.search(source):
        return "triton"
    return "cuda" if _CUDA.search(source) else "cpp"


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
