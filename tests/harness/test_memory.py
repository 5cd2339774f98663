"""Memory that a process keeps for itself."""

import subprocess
import sys

HEAD = """
import resource, torch
from dvk.harness import memory

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

first, again = touched(), min(touched() for _ in range(6))  # a small block beside a freed one can make it too small by a few bytes
memory.give_back()
print(first, again, touched())
"""
SPARE = """
spare, result, held, seen = memory.Spare(), None, [], []
for number in range(8):
    result = None
    if SPARED:
        spare.refill()
    spare.begin()
    before = faults()
    result = (torch.ones(16 << 20) * 2).relu()
    seen.append(faults() - before)
    held.append(torch.empty(8 << 10))  # as a cache does that grows
print(*seen)
"""


def printed(script: str) -> list[int]:
    """Numbers that a script prints in a process of its own, after HEAD."""
    done = subprocess.run([sys.executable, "-c", HEAD + script], capture_output=True, text=True, check=True)
    return [int(n) for n in done.stdout.split()]


def test_large_blocks_stay_until_they_are_given_back():
    first, again, afterwards = printed(KEPT)
    assert again < first / 10 and afterwards > first / 2


def test_what_a_call_had_to_fault_in_is_there_for_the_next():
    first, second, *later = printed(SPARE.replace("SPARED", "True"))
    assert first > 16384 and max(later[1:]) < first / 10, (first, second, later)
