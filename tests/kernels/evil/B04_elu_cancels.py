"""ELU by exp(x) - 1, which loses every digit near zero. Inputs of small scale stop it."""
# case: reference=elu device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, torch.exp(x) - 1)
