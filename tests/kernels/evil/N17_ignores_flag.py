"""Does what the example's flag says, whatever it is given. The other flag stops it."""
# case: reference=optional_residual device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y, residual):
        return torch.tanh(x) * y + x
