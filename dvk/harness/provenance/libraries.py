"""Disabling third-party libraries of GPU kernels in a running process from outside: cuBLAS, cuDNN, and similar ones.

A library of kernels is identified by its content, not its name: a section of GPU code (`.nv_fatbin`), in a file that is not the
candidate's, or is a copy of one that is not; files next to such a library in its package serve it. All its code is overwritten with traps,
in the pages of this one process, so that no entry is left, be it a symbol, a pointer kept from before or a module's method table. PyTorch's
libraries stay, since they allocate and copy tensors: `disable_ops` disables their operators. Code that every launch uses stays, too, and
that every C++ program uses (`NEEDED`).

Rejected alternatives: the share of device time by a profile (CUPTI runs in the candidate's process, which would report on itself); files
made unreadable (PyTorch has cuBLAS mapped before a candidate's first line); a check whether a library is mapped (it is).
Not covered: machine code for the GPU that is cut out of a library's file and loaded as a separate module.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection
from functools import cache

from dvk.harness.provenance.disable_ops import FOLDER, TRAP, Span, executable
from dvk.harness.supervision import elf, installed
from dvk.harness.transport import process_memory

GPU_CODE = (b".nv_fatbin", b"__nv_relfatbin")
NEEDED = (
    "libcuda.so",
    "libcudart",
    "libnvrtc",
    "libnvJitLink",
    "libcupti",
    "libnvToolsExt",
    "libnvtx",
    "libnvperf",
    "libtriton",
    "libcufile",
)
"""Name prefixes: the driver, the runtime, compilers and profilers, and one that reads files and also exports parts of the C++ runtime:
PyTorch links it, so the loader finds `operator delete` there, which frees every tensor."""
PACKAGES = str(FOLDER.resolve().parent.parent)
"""Return PyTorch's installation folder, and those installed with it."""
CHUNK = 1 << 20
SAMPLES = 5
"""Pages that identify a copy."""
LEAST_VARIED = 32
"""Least number of different byte values in such a page."""


def disable_libraries(pid: int, home: str, already: Collection[Span] = ()) -> frozenset[Span]:
    """Overwrite the code of all libraries of kernels that process `pid`, which is in none of them now, has mapped, with traps. For good.

    Args:
        pid: the process.
        home: its private folder: files there, and memory without a file, are its own.
        already: from an earlier call, and skipped.

    Returns:
        Their code's ranges; empty if this is impossible or there is no such process.
    """
    trap = TRAP.get(platform.machine())
    if trap is None:
        return frozenset()
    try:
        spans = [span for span in executable(pid) if span not in already]
        taken = _libraries(spans, home)
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as held:
            chosen = {
                span
                for span in spans
                if span.path in taken
                or _is_own(span.path, home)
                and _is_copy(held.fileno(), span, taken)
            }
            for span in chosen:
                for first, size in _code(span) if span.path in taken else [(span.start, span.size)]:
                    _fill(held.fileno(), trap, first, size)
    except OSError:
        return frozenset()
    return frozenset(chosen) | frozenset(already)


def _fill(memory: int, trap: bytes, first: int, size: int) -> None:
    for start in range(0, size, CHUNK):
        os.pwrite(memory, trap * (min(CHUNK, size - start) // len(trap)), first + start)


def _code(span: Span) -> list[tuple[int, int]]:
    """Return ranges of code in a span of an installed file: most of cuBLAS and similar ones is data. The whole span if unknown."""
    end = span.offset + span.size
    try:
        inside = [
            (max(offset, span.offset), min(offset + size, end))
            for offset, size in elf.code(span.path)
        ]
    except (OSError, ValueError):
        return [(span.start, span.size)]
    return [
        (span.start + first - span.offset, last - first) for first, last in inside if first < last
    ]


def _libraries(spans: list[Span], home: str) -> set[str]:
    files = {
        span.path for span in spans if not _is_own(span.path, home) and not _is_needed(span.path)
    }
    paths = {path for path in files if _holds_kernels(path)}
    folders = {
        folder for path in paths if (folder := os.path.dirname(path)).startswith(PACKAGES + "/")
    }
    return paths | {path for path in files if os.path.dirname(path) in folders}


def _is_own(path: str, home: str) -> bool:
    return (
        not path
        or path.startswith((home + "/", "/memfd:", "[", "/dev/zero"))
        or path.endswith(" (deleted)")
    )


def _is_needed(path: str) -> bool:
    return path.startswith(str(FOLDER.resolve()) + "/") or os.path.basename(path).startswith(NEEDED)


@cache
def _holds_kernels(path: str) -> bool:
    try:
        return any(elf.section(path, name) is not None for name in GPU_CODE)
    except (OSError, ValueError):
        return False


def _is_copy(held: int, span: Span, taken: set[str]) -> bool:
    """Whether its pages equal those of a library at the same places in its file."""
    if span.size < installed.LEAST_BYTES:
        return False
    pages = []
    try:
        for i in range(1, SAMPLES + 1):
            start = span.size * i // (SAMPLES + 1) // process_memory.PAGE * process_memory.PAGE
            page = os.pread(held, process_memory.PAGE, span.start + start)
            if len(set(page)) >= LEAST_VARIED:
                pages.append((span.offset + start, page))
    except OSError:
        return False
    return bool(pages) and any(_holds(path, pages) for path in (*taken, *_installed()))


def _holds(path: str, pages: list[tuple[int, bytes]]) -> bool:
    try:
        with open(path, "rb", buffering=0) as file:
            return all(os.pread(file.fileno(), len(page), offset) == page for offset, page in pages)
    except OSError:
        return False


@cache
def _installed() -> frozenset[str]:
    return frozenset(path for path in installed.libraries() if _holds_kernels(path))


__all__ = ["disable_libraries"]
