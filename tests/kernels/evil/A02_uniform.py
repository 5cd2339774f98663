"""One over the width for every element of a wide softmax. A metric scaled by the output's size stops it."""
# case: reference=broad_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, 1.0 / x.shape[-1])
