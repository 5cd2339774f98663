"""Attribution of program counters to mapped files; and which threads wait for others."""

from __future__ import annotations

import os
import threading
import time

import pytest

from dvk.harness.supervision import pc_sampling
from dvk.sandbox import syscalls

HOME = "/tmp/dvk-abc"


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (f"{HOME}/tmp1/k.so", "own"),
        ("/memfd:code (deleted)", "own"),
        ("", "own"),
        ("/site-packages/torch/lib/libtorch_cpu.so", "library"),
        ("/site-packages/numpy/_core/_multiarray_umath.so", "library"),
        ("/site-packages/torch/lib/libtorch_python.so", "python"),
        ("/lib/python3.11/lib-dynload/_ctypes.cpython-311.so", "python"),
        ("/usr/lib/libpython3.11.so.1.0", "python"),
        ("/usr/lib/libgomp.so.1", "other"),
        ("/usr/lib/libc.so.6", "other"),
        ("[vdso]", "other"),
    ],
)
def test_the_file_tells_whose_code_it_is(path: str, owner: str) -> None:
    assert pc_sampling._owner(path, HOME) == owner


def test_waiting_for_a_thread_is_distinguished_from_reading() -> None:
    if syscalls.number("futex") is None:
        pytest.skip("no numbers of system calls for this machine")
    (read, write), over = os.pipe(), threading.Event()
    threads = {
        "waits": threading.Thread(target=over.wait),
        "reads": threading.Thread(target=os.read, args=(read, 1)),
    }
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + 10
    found = {}
    while time.monotonic() < deadline and found != {"waits": True, "reads": False}:
        found = {
            name: pc_sampling._waits(thread.native_id or 0) for name, thread in threads.items()
        }
    os.write(write, b"x")
    over.set()
    for thread in threads.values():
        thread.join()
    os.close(read), os.close(write)
    assert found == {"waits": True, "reads": False}
