"""Returns at once and does its work from a profiling hook, while the caller's own code runs between reading the clock and
telling that the call is done. What passes until the judge knows is the candidate's time."""
# case: reference=rows_softmax device=any backend=cpp expect=unflattered

import sys

import torch
import torch.nn as nn

CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "clock_gettime", "clock_gettime_ns")
LAST_CHANCE = ("data_ptr", "send", "sendall", "write", "pack_into", "tree_flatten", "encode", "item", "untyped_storage")
due = []


def hook(frame, event, what):
    if not due:
        return
    name = getattr(what, "__name__", "") if event.startswith("c_") else frame.f_code.co_name
    if (event == "c_return" and name in CLOCKS) or (event in ("c_call", "call") and name in LAST_CHANCE):
        x, y = due.pop()
        sys.setprofile(None)
        torch.softmax(x, -1, out=y)
        sys.setprofile(hook)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        sys.setprofile(hook)

    def forward(self, x):
        y = torch.empty_like(x)
        due.append((x, y))
        sys.setprofile(hook)
        return y
