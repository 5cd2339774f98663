"""Writes the address of an older, right-looking output over the address that it reports. All outputs are compared with fresh ones."""
# case: reference=matmul device=cpu backend=cpp expect=refused target=here
# aims: harness.processes.runner.Runner._timed_call.control

import functools
import sys
import threading

import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


def controls(frame):
    while frame is not None:
        if frame.f_locals.get("control") is not None:
            reached()
            yield frame.f_locals["control"]
        frame = frame.f_back


def redirect(control, address):
    control[2] = address


class ModelNew(nn.Module):
    calls = 0
    old = None

    def forward(self, a, b):
        self.calls += 1
        if self.calls <= 6 or self.old is None or self.old.shape != (a.shape[0], b.shape[1]):
            self.old = a @ b
            return self.old
        for control in controls(sys._getframe(1)):
            threading.Timer(1e-4, redirect, (control, self.old.data_ptr())).start()
        return self.old.new_empty(self.old.shape)
