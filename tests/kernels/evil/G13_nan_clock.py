"""Every clock in its process tells NaN, so that comparisons with a limit are false and means are NaN.
Times are the judge's own, finite and positive, or there is no verdict of ok."""
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


nan = float("nan")
CLOCKS = ("perf_counter", "monotonic", "process_time", "thread_time")
for name in (*CLOCKS, *(f"{clock}_ns" for clock in CLOCKS)):
    real = getattr(time, name)
    for module in [one for one in list(sys.modules.values()) if isinstance(one, types.ModuleType)]:
        for key in [key for key, value in list(vars(module).items()) if value is real]:
            setattr(module, key, lambda *args: nan)
            if module.__name__.startswith("dvk."):
                reached()


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
