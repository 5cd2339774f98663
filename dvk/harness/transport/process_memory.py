"""Memory and processor time of other processes, and mappings of this one, by system calls. Linux.

Reading a sibling's memory requires that it stays dumpable and that the kernel lets the same user (or its ancestor) trace it; the sandbox
ensures both before any candidate code runs.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import random
import time
from collections.abc import Sequence

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_libc.malloc.restype, _libc.malloc.argtypes, _libc.free.argtypes = (
    ctypes.c_void_p,
    [ctypes.c_size_t],
    [ctypes.c_void_p],
)
_libc.process_vm_readv.restype = ctypes.c_ssize_t
_libc.process_vm_readv.argtypes = [
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_ulong,
]

PAGE = mmap.PAGESIZE
LINE = 64
GUARD_BYTES, MOST_GUARDED = 64 << 20, 4096
"""Addresses around a lent tensor, which cost nothing; and for how many tensors: a process has 2^47."""
LEAST_SPARE, MOST_SPARE, REFILLS = 8 << 20, 1 << 30, 4
"""Bytes; and how often, for a module that keeps something of every call needs more each time."""
_MAP_FIXED, _MAP_NORESERVE, _PROT_NONE = 0x10, 0x4000, 0
_FAILED = ctypes.c_void_p(-1).value
_CHUNK = 1 << 30


class UnreadableMemory(Exception):
    """The other process's memory is not there, or not readable."""


def read_into(pid: int, address: int, target: int, size: int) -> None:
    """Copy `size` bytes at `address` of process `pid` to this process's address `target`.

    Raises:
        UnreadableMemory: not all of it could be read.
    """
    done = 0
    while done < size:
        part = min(size - done, _CHUNK)
        _readv(pid, [(address + done, part)], target + done, part)
        done += part


class Sample:
    """A few dozen cache lines at random places of several blocks, read in one system call.

    Args:
        sizes: bytes of each block.
        count: lines in all, spread over the blocks by size.
    """

    def __init__(self, sizes: Sequence[int], count: int = 64):
        total = max(1, sum(sizes))
        self.places: list[tuple[int, int, int]] = []  # block, offset, bytes
        for block, size in enumerate(sizes):
            if size == 0:
                continue
            for _ in range(max(1, count * size // total)):
                offset = random.randrange(0, max(1, size - LINE + 1))
                self.places.append((block, offset, min(LINE, size - offset)))
        self.size = sum(n for _, _, n in self.places)
        self._buffer = ctypes.create_string_buffer(max(1, self.size))

    def read(self, pid: int, addresses: Sequence[int]) -> bytes:
        """Return the lines, given the addresses of the blocks in process `pid`.

        Raises:
            UnreadableMemory: a block is not mapped there.
        """
        ranges = [(addresses[block] + offset, n) for block, offset, n in self.places]
        _readv(pid, ranges, ctypes.addressof(self._buffer), self.size)
        return self._buffer.raw[: self.size]

    def of(self, own_addresses: Sequence[int]) -> bytes:
        """Return the same lines of blocks in this process's memory."""
        return b"".join(
            ctypes.string_at(own_addresses[block] + offset, n) for block, offset, n in self.places
        )


def _readv(pid: int, ranges: Sequence[tuple[int, int]], target: int, size: int) -> None:
    if size == 0:
        return
    remote = (ctypes.c_size_t * (2 * len(ranges)))()
    for i, (address, n) in enumerate(ranges):
        if not 0 < address < 1 << 63:
            raise UnreadableMemory(f"no address: {address:#x}")
        remote[2 * i], remote[2 * i + 1] = address, n
    local = (ctypes.c_size_t * 2)(target, size)
    got = _libc.process_vm_readv(pid, local, 1, remote, len(ranges), 0)
    if got != size:
        raise UnreadableMemory(
            os.strerror(ctypes.get_errno()) if got < 0 else f"{got} of {size} bytes"
        )


def keep_freed() -> None:
    """Make malloc keep freed memory and reuse it, instead of returning it to the kernel at unpredictable times.

    By default a large block comes back with or without page faults on all its pages, depending on earlier allocations: on 8 MB outputs,
    2,048 faults in one call and none in the next, which is twice the time of a softmax, and one process may stay with the first and another
    with the second. Blocks of 32 MB and more are mapped again each time, unless a heap has room for them: of two processes with the same
    convolution of 103 MB one took 76 ms per call and the other 30. So nothing is mapped, and all blocks come from the heap.
    """
    trim_threshold, mmap_max = -1, -4
    try:
        _libc.mallopt(trim_threshold, -1)  # never
        _libc.mallopt(mmap_max, 0)
    except AttributeError:  # a C library other than GNU's
        pass


class HeapReserve:
    """Heap memory allocated before a call needs it, in a process that keeps freed memory.

    A heap must hold more than a call's peak: an aligned block does not fit where an equal one was freed. So twice the growth of the process
    in a call is allocated before the next, a few times.
    """

    def __init__(self) -> None:
        self._before, self._left = resident(), REFILLS

    def begin(self) -> None:
        """Start a call."""
        self._before = resident()

    def refill(self) -> None:
        """Run between calls, when the last one's results are freed."""
        size = min(2 * (resident() - self._before), MOST_SPARE)
        if size >= LEAST_SPARE and self._left and (block := _libc.malloc(size)):
            ctypes.memset(block, 0, size)
            _libc.free(block)
            self._left -= 1


def resident(pid: int | str = "self") -> int:
    """Return resident bytes of a process's private memory, without shared memory. 0 if unknown."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except OSError:
        return 0
    return PAGE * (resident - shared)


def give_back() -> None:
    """Return the memory kept by `keep_freed` to the kernel, once it is unused."""
    try:
        _libc.malloc_trim(0)
    except AttributeError:
        pass


def equal(one: int, other: int, size: int) -> bool:
    """Whether the `size` bytes at two addresses of this process agree."""
    return not _libc.memcmp(one, other, size)


def processor_s(pid: int) -> float:
    """Return processor seconds of all threads of process `pid`.

    Raises:
        OSError: there is no such process.
    """
    return time.clock_gettime(
        (~pid << 3) | 2
    )  # CPUCLOCK_SCHED of a process, see clock_getcpuclockid(3)


def stopped(pid: int) -> bool:
    """Whether all threads of process `pid` are stopped, or it has ended."""
    return _all(pid, b"TtZX")


def ended(pid: int, within_s: float = 0.1) -> bool:
    """Whether all threads of process `pid` have ended; a killed one loses its memory a moment before."""
    deadline = time.monotonic() + within_s
    while not (over := _all(pid, b"ZX")) and time.monotonic() < deadline:
        time.sleep(0.001)
    return over


def _all(pid: int, states: bytes) -> bool:
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] not in states:
                    return False
    except OSError:
        return not os.path.exists(f"/proc/{pid}/task")
    return True


class Mapping:
    """Shared memory in segments, each between `GUARD_BYTES` without memory, so that an overrun faults, also a wide one.

    Args:
        descriptor: of a memfd that holds the segments one after another, each from a page's start.
        sizes: bytes of each segment.

    Raises:
        OSError: it cannot be mapped.
    """

    def __init__(self, descriptor: int, sizes: Sequence[int]):
        pages = [pages_of(size) for size in sizes]
        gap = GUARD_BYTES if len(pages) < MOST_GUARDED else PAGE
        self._size = sum(pages) + gap * (len(pages) + 1)
        base = _libc.mmap(
            None,
            self._size,
            _PROT_NONE,
            mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE,
            -1,
            0,
        )
        if base == _FAILED:
            raise OSError(ctypes.get_errno(), "cannot reserve addresses for shared memory")
        self._base: int | None = base
        self.addresses: list[int] = []
        at, offset = base + gap, 0
        for size in pages:
            if size:
                got = _libc.mmap(
                    at,
                    size,
                    mmap.PROT_READ | mmap.PROT_WRITE,
                    mmap.MAP_SHARED | _MAP_FIXED,
                    descriptor,
                    offset,
                )
                if got == _FAILED:
                    raise OSError(ctypes.get_errno(), "cannot map shared memory")
            self.addresses.append(at)
            at, offset = at + size + gap, offset + size

    def close(self) -> None:
        """Unmap; remaining pointers then fault."""
        if self._base is not None:
            _libc.munmap(self._base, self._size)
            self._base = None


def shared(sizes: Sequence[int]) -> int:
    """Return a new memfd for segments of these sizes, zero-filled and of fixed size; the caller closes it.

    Raises:
        OSError: no memory.
    """
    descriptor = os.memfd_create("dvk", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, max(PAGE, sum(map(pages_of, sizes))))
    # A borrower that shortens it would kill all processes that touch the removed part.
    fcntl.fcntl(
        descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    )
    return descriptor


def pages_of(size: int) -> int:
    """Return `size` rounded up to whole pages."""
    return -(-size // PAGE) * PAGE
