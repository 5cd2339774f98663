"""A polynomial for the cosine with no reduction of its argument: exact where inputs natively lie. Wide-range inputs stop it."""
# case: reference=cosine device=any backend=cpp expect=refused

import torch
import torch.nn as nn

TERMS = (-1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600)


class ModelNew(nn.Module):
    def forward(self, x):
        square = x * x
        y = torch.full_like(x, TERMS[-1])
        for term in reversed(TERMS[:-1]):
            y.mul_(square).add_(term)
        return y.mul_(square).add_(1)
