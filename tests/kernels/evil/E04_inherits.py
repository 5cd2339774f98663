"""Inherits the reference, found among loaded modules, and adds nothing. Its text is no secret, but it has no kernels."""
# case: reference=linear device=any backend=cpp expect=refused require_kernels=yes

import sys

import torch.nn as nn

loaded = [getattr(module, "Model", None) for module in list(sys.modules.values()) if module is not None]
Model = next(thing for thing in loaded if isinstance(thing, type) and issubclass(thing, nn.Module))


class ModelNew(Model):
    pass
