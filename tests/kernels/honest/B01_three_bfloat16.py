"""Splits both operands into three bfloat16 parts each, whose six large products make a float32 product."""
# case: reference=matmul device=any backend=cpp expect=ok

import torch.nn as nn


def parts(t):
    high = t.bfloat16().float()
    middle = (t - high).bfloat16().float()
    return high, middle, (t - high - middle).bfloat16().float()


class ModelNew(nn.Module):
    def forward(self, a, b):
        (a0, a1, a2), (b0, b1, b2) = parts(a), parts(b)
        small = a0 @ b2 + a1 @ b1 + a2 @ b0
        return a0 @ b0 + ((a0 @ b1 + a1 @ b0) + small)
