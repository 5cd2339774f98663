"""Sections and exported functions of a shared object. ELF for 64 bits, little-endian."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

DYNAMIC_SYMBOLS, NO_BITS, SYMBOL_BYTES = 11, 8, 24
EXECUTED = 4
"""Flag of sections that hold code."""


class ElfSection(NamedTuple):
    """One entry of the section table; `name` is an offset, see `names`."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


def section(path: str, wanted: bytes) -> ElfSection | None:
    """Return the section of that name.

    Raises:
        OSError, ValueError: unreadable file, or not an ELF file with sections.
    """
    with _held(path) as data:
        found, table = _sections(data)
        for one in found:
            start = table.offset + one.name
            if data[start : start + len(wanted) + 1] == wanted + b"\0":
                return one
    return None


def code(path: str) -> list[tuple[int, int]]:
    """Return the executable sections' ranges in the file: offsets, and bytes.

    Raises:
        OSError, ValueError: see `section`.
    """
    with _held(path) as data:
        return [
            (one.offset, one.size)
            for one in _sections(data)[0]
            if one.flags & EXECUTED and one.kind != NO_BITS
        ]


def functions(
    path: str, pattern: re.Pattern[bytes], chosen: Callable[[re.Match[bytes], bytes], bool]
) -> tuple[int, ...]:
    """Return the entry points of exported functions, as offsets in the file.

    Args:
        path: path of the shared object.
        pattern: prefix of the names.
        chosen: given the match and some hundred bytes after it, whether the function is wanted.

    Raises:
        OSError, ValueError: see `section`.
    """
    with _held(path) as data:
        sections, _ = _sections(data)
        symbols = next((one for one in sections if one.kind == DYNAMIC_SYMBOLS), None)
        if symbols is None:
            return ()
        names = sections[symbols.link]
        wanted = set()
        for match in pattern.finditer(data, names.offset, names.offset + names.size):
            if chosen(match, data[match.end() : match.end() + 400]):
                wanted.add(match.start() - names.offset)
        held = data[symbols.offset : symbols.offset + symbols.size // SYMBOL_BYTES * SYMBOL_BYTES]
        result = set()
        for name, _, _, index, value, _ in struct.iter_unpack("<IBBHQQ", held):
            if name in wanted and value and index:
                home = next(
                    (
                        s
                        for s in sections
                        if s.kind != NO_BITS
                        and s.address
                        and s.address <= value < s.address + s.size
                    ),
                    None,
                )
                if home is not None:
                    result.add(value - home.address + home.offset)
        return tuple(sorted(result))


@contextmanager
def _held(path: str) -> Iterator[mmap.mmap]:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def _sections(data: mmap.mmap) -> tuple[list[ElfSection], ElfSection]:
    """Return all of them, and the one that holds their names."""
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        raise ValueError("not an ELF file for 64 bits")
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    _, count, names = struct.unpack_from("<HHH", data, 0x3A)
    if not offset or not names < count or offset + 64 * count > len(data):
        raise ValueError("it has no sections")
    sections = [
        ElfSection(*struct.unpack_from("<IIQQQQI", data, offset + 64 * i)) for i in range(count)
    ]
    return sections, sections[names]
