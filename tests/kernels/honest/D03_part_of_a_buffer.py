"""Its output is the middle of a larger buffer, all of it computed before the return."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        buffer = x.new_empty(x.numel() + 64)
        y = buffer[16 : 16 + x.numel()].view(x.shape)
        return torch.softmax(x, -1, out=y)
