"""Overrides named_buffers, which its judge calls while it gets ready, to compute there. The clock must not be the only thing
that runs only later: fresh inputs must, too."""
# case: reference=deep_matmul device=cpu backend=cpp expect=unflattered target=here
# aims: harness.processes.runner.Runner.args harness.transport.calls.put_buffers

import functools
import sys

import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ready = None

    def key(self, a, b):
        return a[0, :8].numpy().tobytes(), b[-1, -8:].numpy().tobytes(), a.shape

    def work(self, frame):
        while frame is not None:
            args = getattr(frame.f_locals.get("self"), "args", None)
            if isinstance(args, (list, tuple)) and len(args) == 2 and hasattr(args[0], "data_ptr"):
                reached()
                self.ready = (self.key(*args), args[0] @ args[1])
                return
            frame = frame.f_back

    def named_buffers(self, *args, **kwargs):
        self.work(sys._getframe(1))
        return super().named_buffers(*args, **kwargs)

    def forward(self, a, b):
        if self.ready is not None and self.ready[0] == self.key(a, b):
            return self.ready[1]
        return (a @ b).clone()
