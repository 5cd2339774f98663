"""Replaces its own forward by the one that suits the dtype it sees first."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        self.forward = self.wide if x.dtype is torch.float32 else self.narrow
        return self.forward(x)

    def wide(self, x):
        return torch.softmax(x, -1)

    def narrow(self, x):
        return torch.softmax(x.float(), -1).to(x.dtype)
