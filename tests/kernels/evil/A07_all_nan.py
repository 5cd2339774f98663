"""NaN everywhere, which a comparison written the wrong way round never finds too large. `not (error <= tolerance)` stops it."""
# case: reference=affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, torch.nan)
