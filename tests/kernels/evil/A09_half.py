"""Returns 16-bit floats so that less is written. Exact dtypes stop it."""
# case: reference=affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x.half()) * 2 + 1
