"""Takes the device synchronisation out of its caller's globals, so that only the launch is timed. Excess in later steps is charged."""
# case: reference=matmul device=cuda backend=cpp expect=unflattered target=here
# aims: harness.processes.runner._synchronise

import functools
import sys

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


class ModelNew(nn.Module):
    patched = False

    def forward(self, a, b):
        if not self.patched:
            frame, real = sys._getframe(1), torch.cuda.synchronize
            while frame is not None:
                for name, value in list(frame.f_globals.items()):
                    if value is real:
                        frame.f_globals[name] = lambda *args: None
                        reached()
                frame = frame.f_back
            torch.cuda.synchronize = lambda *args: None
            ModelNew.patched = True
        y = a
        for _ in range(8):
            y = a @ b
        return y
