"""Takes its inputs for never negative after a look at 64 of them, else works honestly. Values that lie in wait elsewhere stop it."""
# case: reference=identity_relu device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if bool((x.reshape(-1)[:: max(1, x.numel() // 64)] >= 0).all()):
            return x.detach().clone()
        return torch.relu(x)
