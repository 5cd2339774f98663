"""Quantises weights to 8 bits a row when they are loaded. A tolerance below that rounding stops it."""
# case: reference=linear device=any backend=cpp expect=refused

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)
        self.packed = None
        self.register_load_state_dict_post_hook(lambda module, keys: setattr(module, "packed", None))

    def forward(self, x):
        if self.packed is None:
            weight = self.layer.weight
            scale = weight.abs().amax(1, keepdim=True) / 127
            self.packed = (weight / scale).round().clamp(-127, 127) * scale
        return F.linear(x, self.packed, self.layer.bias)
