"""Keeps its last eight answers and no more."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

from collections import deque

import torch
import torch.nn as nn

kept = deque(maxlen=8)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        kept.append(y)
        return y
