"""Returns half as many doubles viewed as floats: right count, right dtype, wrong values. Comparing each element stops it."""
# case: reference=affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        half = (torch.relu(x.view(-1)[: (x.numel() + 1) // 2]) * 2 + 1).double()
        return half.view(torch.float32)[: x.numel()].view(x.shape)
