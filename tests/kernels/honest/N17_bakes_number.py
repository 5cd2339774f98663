"""Has a quicker path for the example's scale and computes any other as it should."""
# case: reference=scaled device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, alpha):
        if alpha == 0.5:
            return torch.relu(x).mul_(0.5).add_(1)
        return torch.relu(x) * alpha + 1
