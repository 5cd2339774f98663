"""Takes the sizes of parts as they are given."""
# case: reference=parts device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, sizes):
        result, start = x.new_empty(len(sizes), len(x)), 0
        for row, size in zip(result, sizes):
            torch.amax(x[:, start : start + size], -1, out=row)
            start += size
        return result
