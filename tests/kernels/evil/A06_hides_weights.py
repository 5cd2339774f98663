"""As A06_zero_gate, but has no weights at all, so that none can be loaded into it. Only an untrained module agrees with it."""
# case: reference=gated_residual device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return x.clone()
