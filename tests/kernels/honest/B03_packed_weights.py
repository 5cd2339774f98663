"""Packs its weights in another order, in full precision, whenever load_state_dict has changed them."""
# case: reference=linear device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)
        self.packed = None
        self.register_load_state_dict_post_hook(lambda module, keys: setattr(module, "packed", None))

    def forward(self, x):
        if self.packed is None:
            self.packed = self.layer.weight.detach().t().contiguous()
        return torch.addmm(self.layer.bias, x, self.packed)
