"""Returns at once and does its work from a profiling hook, while the caller's own code runs between reading the clock and
telling that the call is done. What passes until the judge knows is the candidate's time."""
# case: reference=rows_softmax device=any backend=cpp expect=unflattered target=here
# aims: harness.processes.runner._now harness.transport.link.Link.ring harness.transport.link.Link.send

import functools
import sys

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "clock_gettime", "clock_gettime_ns")
LAST_CHANCE = ("send", "sendall", "sendmsg")  # of the socket: an answer to a check, or the bell
due = []


def hook(frame, event, what):
    if not due:
        return
    name = getattr(what, "__name__", "") if event.startswith("c_") else frame.f_code.co_name
    if (event == "c_return" and name in CLOCKS) or (event == "c_call" and name in LAST_CHANCE):
        if name in CLOCKS:
            reached()
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
