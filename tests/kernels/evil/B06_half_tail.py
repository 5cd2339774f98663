"""Sums the last sixteenth of the inner dimension in 16 bits, the rest in float32. A tolerance near float32's own error stops it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        k = a.shape[1] - max(1, a.shape[1] // 16)
        tail = a[:, k:].half().float() @ b[k:].half().float()
        return a[:, :k] @ b[:k] + tail.half()
