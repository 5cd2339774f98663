"""Holds no mathematics: finds the reference's class among loaded modules and calls it. Its text is no secret, but it has no kernels."""
# case: reference=linear device=any backend=cpp expect=refused require_kernels=yes target=here

import functools
import gc
import sys

import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


def reference():
    loaded = [getattr(module, "Model", None) for module in list(sys.modules.values()) if module is not None]
    loaded += [o for o in gc.get_objects() if isinstance(o, type) and o.__name__ == "Model"]
    found = next(o for o in loaded if isinstance(o, type) and issubclass(o, nn.Module))
    reached()
    return found


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        inner = reference()(width, out)
        self.layer = inner.layer
        object.__setattr__(self, "inner", inner)

    def forward(self, x):
        return self.inner(x)
