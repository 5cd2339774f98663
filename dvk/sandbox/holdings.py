"""Memory and disk that a tree of processes holds in unnamed files and in buffers of sockets and pipes.

A file in memory (`memfd_create`, shared anonymous memory) that is written and not mapped is in no process's resident
memory, and a deleted file that is still open is in no folder. Both are found through the descriptors and mappings in
/proc. A mapping whose descriptor is closed shows its file's size to root only; otherwise its mapped size counts, and it is listed as
`unsized`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT, REGULAR, SOCKET, PIPE = 0o170000, 0o100000, 0o140000, 0o010000
SOCKET_BYTES, PIPE_BYTES = 416 << 10, 64 << 10
"""Largest buffer of one socket or pipe by the kernel's defaults. An ordinary user, as a process without capabilities is, has 64 MiB of
larger pipes."""

File = tuple[int, int]
"""Device and inode."""


class HeldBytes:
    """Bytes by file: `memory` and `disk`; `buffers` of sockets and pipes; `unsized`, partly mapped files that may be larger: in memory, on
    disk."""

    def __init__(self) -> None:
        self.memory: dict[File, int] = {}
        self.disk: dict[File, int] = {}
        self.buffers: dict[File, int] = {}
        self.unsized: tuple[set[File], set[File]] = (set(), set())

    def join(self, other: HeldBytes) -> None:
        """Add `other`'s files; sizes known here take precedence."""
        self.memory = {**other.memory, **self.memory}
        self.disk = {**other.disk, **self.disk}
        self.buffers = {**other.buffers, **self.buffers}
        self.unsized = (self.unsized[0] | other.unsized[0], self.unsized[1] | other.unsized[1])


def memory_devices() -> set[int]:
    """Return the devices of files that are in memory and in no folder of the disk."""
    result = set()
    for flags in (0, 4):  # MFD_HUGETLB
        try:
            descriptor = os.memfd_create("dvk", flags)
            result.add(os.fstat(descriptor).st_dev)
            os.close(descriptor)
        except OSError:
            pass
    try:
        result.add(os.stat("/dev/shm").st_dev)
    except OSError:
        pass
    return result


def measure_holdings(
    pids: Iterable[int], devices: set[int], thorough: bool, most_bytes: int
) -> HeldBytes:
    """Return the holdings of our processes.

    Args:
        pids: process ids.
        devices: see `memory_devices`.
        thorough: also read mappings, and descriptors of single threads; milliseconds each.
        most_bytes: stop counting above this; the sum of both limits, so that memory or disk must be over its limit.
    """
    held = HeldBytes()
    total = 0
    for pid in pids:
        for place in _tables(pid) if thorough else (f"/proc/{pid}/fd",):
            for status in _open_files(place):
                total += _note(held, status, devices)
                if total > most_bytes:
                    return held
        if thorough:
            _note_mappings(held, pid, devices)
    return held


def _tables(pid: int) -> list[str]:
    """Return folders of descriptors: a thread may have a separate table."""
    try:
        return [f"/proc/{pid}/task/{thread}/fd" for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _open_files(place: str) -> Iterator[os.stat_result]:
    try:
        numbers = os.listdir(place)
    except OSError:
        return
    for number in numbers:
        try:
            yield os.stat(f"{place}/{number}")
        except OSError:
            continue


def _note(found: HeldBytes, status: os.stat_result, devices: set[int]) -> int:
    """Return the bytes that were not counted before."""
    file, kind = (status.st_dev, status.st_ino), status.st_mode & FORMAT
    if kind == REGULAR and status.st_dev in devices:
        where, size = found.memory, status.st_blocks * 512
    elif kind == REGULAR and status.st_nlink == 0:
        where, size = found.disk, status.st_blocks * 512
    elif kind in (SOCKET, PIPE):
        where, size = found.buffers, SOCKET_BYTES if kind == SOCKET else PIPE_BYTES
    else:
        return 0
    new = 0 if file in where else size
    where[file] = size
    return new


def _note_mappings(found: HeldBytes, pid: int, devices: set[int]) -> None:
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = [line for line in file if b"(deleted)" in line or b" /dev/shm/" in line]
    except OSError:
        return
    mapped_bytes: dict[File, int] = {}
    for line in lines:
        span, _, _, device, inode, *_ = line.split(None, 5)
        major, minor = (int(part, 16) for part in device.split(b":"))
        mapped = os.makedev(major, minor), int(inode)
        in_memory = mapped[0] in devices
        where = found.memory if in_memory else found.disk
        if mapped in where and mapped not in found.unsized[not in_memory]:
            continue
        try:
            _note(found, os.stat(f"/proc/{pid}/map_files/{span.decode()}"), devices)
        except OSError:
            start, end = (int(part, 16) for part in span.split(b"-"))
            mapped_bytes[mapped] = mapped_bytes.get(mapped, 0) + end - start
            where[mapped] = max(where.get(mapped, 0), mapped_bytes[mapped])
            found.unsized[not in_memory].add(mapped)
