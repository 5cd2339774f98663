"""Takes batch normalisation with fresh statistics for the scaling it then is. Randomised statistics and weights stop it."""
# case: reference=batch_norm device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm2d(features).eval()

    def forward(self, x):
        return x * (1 + self.norm.eps) ** -0.5
