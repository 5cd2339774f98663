"""Overrides named_buffers, which its judge calls while it gets ready, to compute there. The clock must not be the only thing
that runs only later: fresh inputs must, too."""
# case: reference=deep_matmul device=cpu backend=cpp expect=unflattered

import sys

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ready = None

    def key(self, a, b):
        return a[0, :8].numpy().tobytes(), b[-1, -8:].numpy().tobytes(), a.shape

    def work(self, frame):
        while frame is not None:
            for held in (frame.f_locals.get("self"), frame.f_locals.get("case")):
                args = getattr(held, "args", None)
                if isinstance(args, (list, tuple)) and len(args) == 2 and hasattr(args[0], "data_ptr"):
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
