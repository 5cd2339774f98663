"""Memory that a process keeps for itself."""

import subprocess
import sys

SCRIPT = """
import resource, torch
from dvk.harness import memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def touched():
    before = faults()
    torch.empty(16 << 20).fill_(1.0)
    return faults() - before

torch.set_num_threads(1)
memory.keep_freed(large=LARGE)
first, again = touched(), min(touched() for _ in range(6))  # a small block beside a freed one can make it too small by a few bytes
memory.give_back()
print(first, again, touched())
"""


def page_faults(*, large: bool) -> list[int]:
    """Of filling 64 MB for the first time, once they were freed, and after `give_back`, in a process of its own."""
    script = SCRIPT.replace("LARGE", str(large))
    return [int(n) for n in subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()]


def test_large_blocks_stay_until_they_are_given_back():
    first, again, afterwards = page_faults(large=True)
    assert again < first / 10 and afterwards > first / 2


def test_a_timed_process_maps_them_anew_as_any_other_does():
    first, again, _ = page_faults(large=False)
    assert again > first / 2
