"""Has its clock stamps lie a tenth of a microsecond apart, so that all of its few microseconds are gap, of which the judge
forgives what the handshake costs. What is forgiven may not be more than the handshake, or small calls look like none."""
# case: reference=tiny_affine device=any backend=cpp expect=unflattered target=here
# aims: harness.processes.runner._now

import functools
import sys
import time
import types

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


real = time.perf_counter_ns
last, odd = 0, True


def together():
    """Every second time, a little after the time before."""
    global last, odd
    odd = not odd
    last = last + 100 if odd else real()
    return last


def take_over():
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType) and module.__name__.endswith(".runner") and vars(module).get("_now") is real:
            module._now = together
            reached()


take_over()


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1
