"""Splits one operand only into two 16-bit floats, which leaves the other's rounding error. A tolerance below that rounding stops it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        high = a.half().float()
        low = (a - high).half().float()
        narrow = b.half().float()
        return high @ narrow + low @ narrow
