"""Patches its judge's line so that it computes as it says that it is ready, before the clock starts. Inputs are not there yet."""
# case: reference=deep_matmul device=cpu backend=cpp expect=unflattered target=here
# aims: harness.transport.link.Link.ring harness.processes.runner.Runner.rounds harness.processes.runner.Runner.args

import functools
import gc
import sys

import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ready = None
        self.patched = False

    def patch(self):
        self.patched = True
        for name, module in list(sys.modules.items()):
            if name.startswith("dvk.") and (line := getattr(module, "Link", None)) is not None and hasattr(line, "ring"):
                line.ring = self.first(line.ring)
                return

    def first(self, real):
        def wrapped(link, byte):
            if byte == b"r":
                for runner in self.runners:
                    if len(runner.args) == 2:
                        a, b = runner.args
                        reached()
                        self.ready = (self.key(a, b), a @ b)
            return real(link, byte)

        return wrapped

    def key(self, a, b):
        return a[0, :8].numpy().tobytes(), b[-1, -8:].numpy().tobytes(), a.shape

    def forward(self, a, b):
        if not self.patched:
            self.runners = [o for o in gc.get_objects() if hasattr(type(o), "rounds") and isinstance(getattr(o, "args", None), list)]
            self.patch()
        if self.ready is not None and self.ready[0] == self.key(a, b):
            return self.ready[1]
        return (a @ b).clone()
