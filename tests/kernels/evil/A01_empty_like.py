"""Returns memory that was never written and hopes to be handed the block of the reference's result.
Poison, and no result nearby, stop it."""
# case: reference=affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.empty_like(x)
