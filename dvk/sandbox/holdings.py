"""Memory and disk that a tree of processes holds in files without a name, and in buffers of sockets and pipes.

A file in memory (`memfd_create`, shared anonymous memory) that is written and not mapped is in no process's resident
memory, and a deleted file that is still open is in no folder. Both are found through the descriptors and mappings in
/proc. A mapping whose descriptor is closed shows its file's size to root only; for others it counts as large as it is
mapped, and counts as `unsized`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT, REGULAR, SOCKET, PIPE = 0o170000, 0o100000, 0o140000, 0o010000
SOCKET_BYTES, PIPE_BYTES = 416 << 10, 64 << 10
"""What one holds at most, by the kernel's defaults. Larger pipes an ordinary user has 64 MiB of, and a process without
capabilities is one."""

File = tuple[int, int]
"""Device and inode."""


class HeldBytes:
    """Bytes by file: `memory` and `disk`; `buffers` of sockets and pipes; `unsized`, files of which a part is mapped that
    may be larger: in memory, on disk."""

    def __init__(self) -> None:
        self.memory: dict[File, int] = {}
        self.disk: dict[File, int] = {}
        self.buffers: dict[File, int] = {}
        self.unsized: tuple[set[File], set[File]] = (set(), set())

    def join(self, other: HeldBytes) -> None:
        """Count `other`'s files too; what is known here counts."""
        self.memory = {**other.memory, **self.memory}
        self.disk = {**other.disk, **self.disk}
        self.buffers = {**other.buffers, **self.buffers}
        self.unsized = (self.unsized[0] | other.unsized[0], self.unsized[1] | other.unsized[1])


def memory_devices() -> set[int]:
    """Devices of files that lie in memory and in no folder of the disk."""
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


def held(pids: Iterable[int], devices: set[int], thorough: bool, most_bytes: int) -> HeldBytes:
    """By processes of ours.

    Args:
        pids: their ids.
        devices: see `memory_devices`.
        thorough: mappings, and descriptors that single threads have for themselves, too; milliseconds each.
        most_bytes: stop counting above it, when memory or disk must be over its limit; the sum of both limits.
    """
    found = HeldBytes()
    total = 0
    for pid in pids:
        for place in _tables(pid) if thorough else (f"/proc/{pid}/fd",):
            for status in _open_files(place):
                total += _note(found, status, devices)
                if total > most_bytes:
                    return found
        if thorough:
            _note_mappings(found, pid, devices)
    return found


def _tables(pid: int) -> list[str]:
    """Folders of descriptors: a thread may have a separate table."""
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
    """Bytes that were not counted before."""
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
