"""Take PyTorch's operators out of a running process from outside, to see whether a candidate computes without them.

`operators.forbidden` does the same inside, where whoever looks for it can lift it. Here the first instruction of every operator
that computes, `at::_ops::NAME::call` and `redispatch` in libtorch_cpu, which Python, extensions and PyTorch's own kernels pass
on a CPU as on a GPU, is overwritten with a trap while the runner waits, by /proc/PID/mem. The page becomes the runner's own copy;
nothing of it reaches another process. Who runs into a trap ends. Not covered: kernels that are called past the operators, and
other libraries; where a call is long enough, `sampling` sees those.
"""

from __future__ import annotations

import os
import platform
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from dvk.harness.operators import ALLOWED

LIBRARY = "libtorch_cpu.so"
TRAP = {"x86_64": b"\xcc", "aarch64": b"\x00\x00\x20\xd4"}
DYNAMIC_SYMBOLS, SYMBOL_BYTES = 11, 24
_ENTRY = re.compile(rb"_ZN2at4_ops(\d+)")
_CALLED = (b"4callE", b"10redispatchE")


@contextmanager
def unplugged(pid: int) -> Iterator[bool]:
    """Run the body while process `pid`, which is in no operator now, would trap in any that computes; False where this cannot be done.

    The traps are taken back afterwards, if there still is such a process.
    """
    trap = TRAP.get(platform.machine())
    try:
        before = _put(pid, dict.fromkeys(entries(), trap)) if trap is not None else {}
    except OSError:  # no such library in it, or a kernel that lets nobody write there
        before = {}
    try:
        yield bool(before)
    finally:
        try:
            _put(pid, before)
        except OSError:
            pass


def _put(pid: int, texts: dict[int, bytes]) -> dict[int, bytes]:
    """Write to places of the library as `pid` has it mapped, by offset in the file; what was there."""
    found: dict[int, bytes] = {}
    if not texts:
        return found
    spans = _executable(pid)
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for offset, text in texts.items():
            place = next((start + offset - first for start, first, size in spans if first <= offset < first + size), None)
            if place is not None:
                memory.seek(place)
                found[offset] = memory.read(len(text))
                memory.seek(place)
                memory.write(text)
    return found


def _executable(pid: int) -> list[tuple[int, int, int]]:
    """(address, offset in the file, bytes) of the library's code in `pid`."""
    path, found = os.path.realpath(_path()), []
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            words = line.rstrip("\n").split(maxsplit=5)
            if len(words) == 6 and "x" in words[1] and os.path.realpath(words[5]) == path:
                start, end = (int(word, 16) for word in words[0].split("-"))
                found.append((start, int(words[2], 16), end - start))
    return found


@cache
def entries() -> tuple[int, ...]:
    """Where the operators that compute begin, as offsets in the library's file.

    Raises:
        OSError: it cannot be read.
    """
    computing = set()
    for called in torch._C._dispatch_get_all_op_names():
        space, _, rest = called.partition("::")
        name, _, overload = rest.partition(".")
        if space == "aten" and name not in ALLOWED and "backward" not in name:
            computing.add(f"{name}_{overload}" if overload else name)
    data = _path().read_bytes()
    sections = _sections(data)
    symbols = next(s for s in sections if s[1] == DYNAMIC_SYMBOLS)
    names = sections[symbols[6]]
    wanted = {}
    for match in _ENTRY.finditer(data, names[4], names[4] + names[5]):
        start, size = match.end(), int(match[1])
        if data[start : start + size].decode() in computing and data.startswith(_CALLED, start + size):
            wanted[match.start() - names[4]] = True
    found = []
    for name, _, _, _, value, _ in struct.iter_unpack("<IBBHQQ", data[symbols[4] : symbols[4] + symbols[5] // SYMBOL_BYTES * SYMBOL_BYTES]):
        if name in wanted and value:
            section = next(s for s in sections if s[3] and s[3] <= value < s[3] + s[5])
            found.append(value - section[3] + section[4])
    return tuple(sorted(found))


def _sections(data: bytes) -> list[tuple[int, ...]]:
    """(name, type, flags, address, offset, size, link, …) of each; ELF for 64 bits, little-endian."""
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    return [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]


def _path() -> Path:
    return Path(torch.__file__).parent / "lib" / LIBRARY


__all__ = ["entries", "unplugged"]
