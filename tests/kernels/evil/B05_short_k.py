"""Leaves the last 1/128 of the inner dimension out of a matrix product. A tolerance below what that is worth stops it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        k = a.shape[1] - max(1, a.shape[1] // 128)
        return a[:, :k] @ b[:k]
