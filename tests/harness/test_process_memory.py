"""Memory that a process keeps for itself."""

import subprocess
import sys

import pytest

HEAD = """
import resource, torch
from dvk.harness.transport import process_memory as memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

torch.set_num_threads(1)
memory.keep_freed()
"""
KEPT = """
def touched():
    before = faults()
    torch.empty(16 << 20).fill_(1.0)
    return faults() - before

first, again = touched(), min(touched() for _ in range(6))  # a small block next to a freed one can make it too small by a few bytes
memory.give_back()
print(first, again, touched())
"""
SPARE = """
spare = memory.HeapReserve()
torch.ones(16 << 20)
if SPARED:
    spare.refill()
before = faults()
torch.ones(28 << 20)
print(faults() - before)
"""


def printed(script: str) -> list[int]:
    """Numbers that a script prints in a separate process, after HEAD."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script], capture_output=True, text=True, check=True
    )
    return [int(n) for n in done.stdout.split()]


@pytest.mark.slow
def test_large_blocks_stay_until_they_are_given_back():
    for _ in range(
        3
    ):  # a process in some hundred maps them all the same, perhaps where its heap meets another mapping
        first, again, afterwards = printed(KEPT)
        if again < first / 10:
            break
    assert again < first / 10 and afterwards > first / 2


@pytest.mark.slow
def test_twice_what_a_call_grew_by_is_there_for_the_next():
    (without,), (spared,) = (
        printed(SPARE.replace("SPARED", str(spared))) for spared in (False, True)
    )
    assert spared < without / 10


@pytest.mark.slow
def test_nothing_is_given_back_however_much_it_is():
    """malloc's threshold for that cannot be set above 2 GiB, but can be taken away."""
    end = "memory._libc.sbrk.restype = memory.ctypes.c_void_p; end = lambda: memory._libc.sbrk(0)\n"
    (kept,) = printed(
        end
        + "before = end(); memory._libc.free(memory._libc.malloc(5 << 29)); print(end() - before)"
    )
    assert kept > 1 << 31
