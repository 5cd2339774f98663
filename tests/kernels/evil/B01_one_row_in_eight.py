"""A matrix product in float32 but for every eighth row, which is rounded to 16 bits. Comparing each element stops it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        left = a.clone()
        left[::8] = left[::8].half().float()
        return left @ b
