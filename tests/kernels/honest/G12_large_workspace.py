"""Allocates a quarter of a gigabyte once, as workspace, and starts a few threads."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.workspace = torch.empty(1 << 26)
        self.pool = ThreadPoolExecutor(4)

    def forward(self, x):
        y = torch.empty_like(x)
        parts = zip(x.chunk(4), y.chunk(4))
        list(self.pool.map(lambda part: torch.softmax(part[0], -1, out=part[1]), parts))
        return y
