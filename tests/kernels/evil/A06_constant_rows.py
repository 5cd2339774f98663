"""Takes rows of one value for granted: their log-sum-exp is that value plus log of the width. Other inputs stop it."""
# case: reference=block_constant device=any backend=cpp expect=refused

import math

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x[:, 0] + math.log(x.shape[1])
