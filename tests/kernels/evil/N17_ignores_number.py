"""Has the example's scale written in and ignores the one it is given. Other numbers stop it."""
# case: reference=scaled device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, alpha):
        return torch.relu(x) * 0.5 + 1
