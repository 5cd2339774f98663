"""Multiplies by the leading singular vectors of the weights. Weights without such structure stop it."""
# case: reference=linear device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)
        self.factors = None
        self.register_load_state_dict_post_hook(lambda module, keys: setattr(module, "factors", None))

    def forward(self, x):
        if self.factors is None:
            u, s, v = torch.linalg.svd(self.layer.weight, full_matrices=False)
            self.factors = v[:64].t().contiguous(), (u[:, :64] * s[:64]).t().contiguous()
        left, right = self.factors
        return (x @ left) @ right + self.layer.bias
