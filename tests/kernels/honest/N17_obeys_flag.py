"""Fuses the residual where it is asked for."""
# case: reference=optional_residual device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y, residual):
        return torch.addcmul(x, torch.tanh(x), y) if residual else torch.tanh(x).mul_(y)
