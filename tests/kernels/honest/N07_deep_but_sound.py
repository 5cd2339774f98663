"""Uses deep recursion and large numbers, and closes the files it opens."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import json
import os

import torch
import torch.nn as nn


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        files = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]
        for file in files:
            os.close(file)
        self.settings = json.loads("[" * 50 + str(10**300) + "]" * 50)
        self.depth = depth(200)

    def forward(self, x):
        return torch.softmax(x, -1)
