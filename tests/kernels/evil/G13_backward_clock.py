"""Every clock in its process stands still during its calls and steps back after them, for times of zero or less.
Times are the judge's own, and a ratio with zero is no speedup."""
# case: reference=rows_softmax device=any backend=cpp expect=unflattered target=here
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


now = time.perf_counter_ns
REAL = {name: getattr(time, name) for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "clock_gettime_ns")}
shift_ns = 0


def lying(real, in_ns):
    return lambda *args: real(*args) - shift_ns if in_ns else real(*args) - shift_ns / 1e9


for name, real in REAL.items():
    lie = lying(real, name.endswith("_ns"))
    for module in [one for one in list(sys.modules.values()) if isinstance(one, types.ModuleType)]:
        if vars(module) is not globals():
            for key in [key for key, value in list(vars(module).items()) if value is real]:
                setattr(module, key, lie)
                if module.__name__.startswith("dvk."):
                    reached()


class ModelNew(nn.Module):
    def forward(self, x):
        global shift_ns
        start = now()
        e = torch.exp(x - x.amax(-1, keepdim=True))
        y = e / e.sum(-1, keepdim=True)
        shift_ns += now() - start + 1_000_000
        return y
