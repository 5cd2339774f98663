"""Takes sorted rows for granted: their running maximum is themselves. Inputs in another order stop it."""
# case: reference=cumulative_max device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
