"""Memory and disk taken where neither resident pages nor folders show them: one way a function, each until it is stopped."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import sys
import threading
import time

MIB = 1 << 20
BLOCK = b"\1" * (8 * MIB)
MOST = 3 << 30
"""Bounded for a machine on which nothing stops them."""


def memory_files(channel):
    """Written, never mapped."""
    for _ in range(6):
        descriptor = os.memfd_create("m")
        for _ in range(64):
            os.write(descriptor, BLOCK)
    _rest(channel)


def memory_files_closed(channel):
    """Mapped, not resident, and no descriptor left; a page of each shows that there is one."""
    kept = []
    for _ in range(6):
        descriptor = os.memfd_create("m")
        for _ in range(64):
            os.write(descriptor, BLOCK)
        kept.append(mmap.mmap(descriptor, mmap.PAGESIZE))
        os.close(descriptor)
    _rest(channel)


def shared_unmapped(channel):
    """Shared anonymous memory that was touched and whose pages were given back by this process, not by the file behind."""
    kept = []
    for _ in range(6):
        pages = mmap.mmap(-1, 512 * MIB)
        for start in range(0, 512 * MIB, len(BLOCK)):
            pages[start : start + len(BLOCK)] = BLOCK
        pages.madvise(mmap.MADV_DONTNEED)
        kept.append(pages)
    _rest(channel)


def grandchildren(channel):
    for _ in range(6):
        if os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                hoard = [b"x" * (512 * MIB)]
                time.sleep(30)
                del hoard
            os._exit(0)
    _rest(channel)


def sockets(channel):
    """Each holds 200 KiB that are never read."""
    kept = []
    text = b"\1" * 65536
    while len(kept) * 200_000 < MOST:
        kept.append(socket.socketpair())
        kept[-1][0].setblocking(False)
        try:
            while kept[-1][0].send(text):
                pass
        except OSError:
            pass
    _rest(channel)


def page_tables(channel):
    """A page of zeros read in every two megabytes of a large reservation: no memory but the tables."""
    libc, gap, size = ctypes.CDLL(None), 2 * MIB, 1 << 40
    libc.mmap.restype = ctypes.c_void_p
    for _ in range(4):
        private_anonymous_noreserve, nohugepage = 0x4022, 15
        base = libc.mmap(
            None,
            ctypes.c_size_t(size),
            mmap.PROT_READ,
            private_anonymous_noreserve,
            -1,
            ctypes.c_long(0),
        )
        libc.madvise(ctypes.c_void_p(base), ctypes.c_size_t(size), nohugepage)
        for place in range(0, size, gap):
            ctypes.string_at(base + place, 1)
    _rest(channel)


def a_thread_alone(channel):
    """The first thread has ended: /proc shows the process as a zombie, and the memory with another thread."""

    def hoard():
        time.sleep(0.2)
        kept = [bytearray(b"x" * (64 * MIB)) for _ in range(MOST // (64 * MIB))]
        _rest(channel, kept)

    threading.Thread(target=hoard).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)


def descriptors_of_a_thread(channel):
    """A thread with a separate table of descriptors."""

    def hoard():
        close_range, unshare = 436, 2
        ctypes.CDLL(None).syscall(close_range, 900, 901, unshare)
        memory_files(channel)

    thread = threading.Thread(target=hoard)
    thread.start()
    thread.join()


def disk_at_a_stroke(channel):
    """By the system call, not by posix_fallocate, which falls back to writing."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    descriptor = _nameless()
    done = [libc.fallocate(descriptor, mode, 0, 6 << 30) for mode in (0, 1)]
    channel.send({"blocks": os.fstat(descriptor).st_blocks, "done": done})
    channel.receive()


def disk_by_ioctl(channel):
    import fcntl
    import struct

    descriptor = _nameless()
    request = struct.pack("hhxxxxqqi", 0, 0, 0, 6 << 30, 0).ljust(48, b"\0")
    done = []
    for code in (0x40305828, 0x4030582A, 0x40305839):
        try:
            fcntl.ioctl(descriptor, code, request)
            done.append(0)
        except OSError:
            done.append(-1)
    channel.send({"blocks": os.fstat(descriptor).st_blocks, "done": done})
    channel.receive()


def deleted_files(channel):
    descriptors = [_nameless() for _ in range(3)]
    for descriptor in descriptors:
        for _ in range(64):
            os.write(descriptor, BLOCK)
    _rest(channel)


def deleted_files_closed(channel):
    kept = []
    for _ in range(3):
        descriptor = _nameless()
        for _ in range(64):
            os.write(descriptor, BLOCK)
        kept.append(mmap.mmap(descriptor, mmap.PAGESIZE))
        os.close(descriptor)
    _rest(channel)


def hidden_folder(channel):
    """Only root may look into it."""
    os.mkdir("hidden")
    inside = os.open("hidden", os.O_PATH | os.O_DIRECTORY)
    files = [
        os.open(f"/proc/self/fd/{inside}/{number}", os.O_CREAT | os.O_RDWR) for number in range(3)
    ]
    os.chmod("hidden", 0)
    for descriptor in files:
        for _ in range(64):
            os.write(descriptor, BLOCK)
    _rest(channel)


def deep_folder(channel):
    for _ in range(100):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    for number in range(3):
        with open(str(number), "wb") as file:
            for _ in range(64):
                file.write(BLOCK)
    _rest(channel)


def many_files(channel):
    for number in range(1 << 18):
        os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY))
    _rest(channel)


def honest(channel):
    """Some of everything, as programs have it."""
    descriptor = os.memfd_create("workspace")
    os.ftruncate(descriptor, 64 * MIB)
    pages = mmap.mmap(descriptor, 64 * MIB)
    pages[:] = b"\1" * (64 * MIB)
    ends = [socket.socketpair() for _ in range(8)] + [os.pipe() for _ in range(8)]
    sparse = os.open("sparse", os.O_CREAT | os.O_RDWR)
    os.ftruncate(sparse, 256 * MIB)
    os.posix_fallocate(sparse, 0, MIB)
    time.sleep(0.6)
    channel.send({"lives": len(ends)})
    channel.receive()


def _nameless():
    descriptor = os.open("file", os.O_CREAT | os.O_RDWR)
    os.unlink("file")
    return descriptor


def _rest(channel, *_):
    time.sleep(15)
    channel.send({"survived": sys._getframe(1).f_code.co_name})
    channel.receive()
