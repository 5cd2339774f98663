"""Inherits the reference, found among loaded modules, and adds nothing. Its text is no secret, but it has no kernels."""
# case: reference=linear device=any backend=cpp expect=refused require_kernels=yes target=here

import functools
import sys

import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


loaded = [getattr(module, "Model", None) for module in list(sys.modules.values()) if module is not None]
Model = next(thing for thing in loaded if isinstance(thing, type) and issubclass(thing, nn.Module))
reached()


class ModelNew(Model):
    pass
