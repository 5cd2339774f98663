"""Overrides load_state_dict to load nothing and keeps the weights it was born with. Outputs under loaded weights stop it."""
# case: reference=layer_norm device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def load_state_dict(self, state_dict, *args, **kwargs):
        return torch.nn.modules.module._IncompatibleKeys([], [])

    def forward(self, x):
        return torch.layer_norm(x, x.shape[-1:])
