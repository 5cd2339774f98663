"""Disabling PyTorch's operators in a running process from outside, to test whether a candidate computes without them.

`operators.forbidden` does the same inside, where a candidate can undo it. Here the first instruction of every operator that computes is
overwritten with a trap while the runner waits, by /proc/PID/mem: of `at::_ops::NAME::call` and `redispatch`, which Python, extensions and
PyTorch's kernels pass on a CPU as on a GPU, and of `at::cpu::NAME` and `at::cuda::NAME`, which C++ may call instead. The page becomes a
private copy of the runner; other processes are not affected. A process that hits a trap ends. Other functions can be trapped likewise:
those that replay or capture CUDA graphs, and those that load libraries: not `dlopen`, by which PyTorch finds the driver at every launch of
a kernel that it compiled, but the loader's function for mapping a new file. Not covered: `at::native`, and kernels of other libraries,
which `libraries` disables.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch

from dvk.harness.provenance.operators import ALLOWED
from dvk.harness.supervision import elf

TRAP = {"x86_64": b"\xcc", "aarch64": b"\x00\x00\x20\xd4"}
FOLDER = Path(torch.__file__).parent / "lib"
LIBRARIES = ("libtorch_cpu.so", "libtorch_cuda.so")
What = Literal["operators", "replays", "captures", "loading"]
Place = tuple[str, int]
"""A file and an offset in it."""

_OPERATOR = re.compile(rb"_ZN2at(4_ops|3cpu|4cuda)(\d+)")
_CALLED = (b"4callE", b"10redispatchE")
_CUDA = ("libcuda.so", "libcudart", "libtorch_cuda.so")
_DOORS: dict[What, tuple[tuple[str, ...], re.Pattern[bytes]]] = {
    "replays": (_CUDA, re.compile(rb"cu(?:da)?GraphLaunch|_ZN2at4cuda9CUDAGraph6replayE")),
    "captures": (
        _CUDA,
        re.compile(rb"cu(?:da)?StreamBeginCapture|_ZN2at4cuda9CUDAGraph13capture_beginE"),
    ),
    "loading": (("ld-",), re.compile(rb"_dl_debug_state\x00")),  # made for debuggers, so exported
}
"""Other trapped functions: prefixes of libraries' names, and of functions'."""


@dataclass
class DisabledOps:
    """Attributes: `done`, whether they could be set; `lifted`, whether some were gone when they were removed."""

    done: bool
    lifted: bool = False


@dataclass(frozen=True)
class Span:
    """Executable pages of a file in a process: address, offset in the file, bytes."""

    path: str
    start: int
    offset: int
    size: int


@contextmanager
def ops_disabled(pid: int, *what: What) -> Iterator[DisabledOps]:
    """Run the body while process `pid`, which is in no such function now, would trap in any of those: operators by default.

    The traps are removed afterwards, if the process still exists.
    """
    trap, before = TRAP.get(platform.machine()), {}
    try:
        if trap is not None:
            spans = executable(pid)
            before = _put(pid, spans, dict.fromkeys(_places(spans, what or ("operators",)), trap))
    except OSError:  # no such library in it, or a kernel that forbids writing there
        pass
    traps = DisabledOps(bool(before))
    try:
        yield traps
    finally:
        try:
            previous = _put(pid, executable(pid), before) if before else {}
            traps.lifted = any(text != trap for text in previous.values())
        except OSError:
            pass


def executable(pid: int) -> list[Span]:
    """Return what `pid` has mapped as executable, files and memory without one (path empty, or in brackets).

    Raises:
        OSError: there is no such process.
    """
    result = []
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            words = line.rstrip("\n").split(maxsplit=5)
            if "x" in words[1]:
                start, end = (int(word, 16) for word in words[0].split("-"))
                result.append(
                    Span(words[5] if len(words) == 6 else "", start, int(words[2], 16), end - start)
                )
    return result


def _put(pid: int, spans: list[Span], texts: dict[Place, bytes]) -> dict[Place, bytes]:
    """Write to places of files as `pid` has them mapped; return the previous bytes."""
    result: dict[Place, bytes] = {}
    mapped: dict[str, list[Span]] = {}
    for span in spans:
        mapped.setdefault(span.path, []).append(span)
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for (path, offset), text in texts.items():
            spans_here = mapped.get(path, ())
            place = next(
                (
                    s.start + offset - s.offset
                    for s in spans_here
                    if s.offset <= offset < s.offset + s.size
                ),
                None,
            )
            if place is not None:
                memory.seek(place)
                result[path, offset] = memory.read(len(text))
                memory.seek(place)
                memory.write(text)
    return result


def _places(spans: list[Span], what: tuple[What, ...]) -> list[Place]:
    result: list[Place] = []
    for path in dict.fromkeys(span.path for span in spans):
        name = os.path.basename(path)
        if (
            "operators" in what
            and name in LIBRARIES
            and os.path.realpath(path) == os.path.realpath(FOLDER / name)
        ):
            result += [(path, offset) for offset in entries(path)]
        result += [
            (path, offset)
            for one in what
            if one in _DOORS and name.startswith(_DOORS[one][0])
            for offset in _doors(path, one)
        ]
    return result


@cache
def entries(path: str) -> tuple[int, ...]:
    """Return entry points of the operators that compute, as offsets in a library's file, those called past the dispatcher included.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    computing, overloads = set(), set()
    for called in torch._C._dispatch_get_all_op_names():
        space, _, rest = called.partition("::")
        name, _, overload = rest.partition(".")
        if space == "aten" and name not in ALLOWED and "backward" not in name:
            computing.add(name)
            overloads.add(f"{name}_{overload}" if overload else name)

    def computes(match: re.Match[bytes], after: bytes) -> bool:
        size = int(match[2])
        name = after[:size].decode(errors="replace")
        if match[1] == b"4_ops":
            return name in overloads and after.startswith(_CALLED, size)
        return name.removesuffix("_outf").removesuffix("_out") in computing and after.startswith(
            b"E", size
        )

    return elf.functions(path, _OPERATOR, computes)


@cache
def _doors(path: str, what: What) -> tuple[int, ...]:
    try:
        return elf.functions(path, _DOORS[what][1], lambda match, after: True)
    except (OSError, ValueError):  # deleted meanwhile, or a separate namespace
        return ()


__all__ = ["Span", "DisabledOps", "What", "entries", "executable", "ops_disabled"]
