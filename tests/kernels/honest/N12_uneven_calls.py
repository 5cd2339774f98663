"""Takes longer in some calls than in others, all of it within the call."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 3 == 0:
            torch.softmax(x[: x.shape[0] // 2], -1)
        return torch.softmax(x, -1)
