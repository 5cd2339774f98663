"""Strassen's algorithm, two levels: 49 products of quarter size where 64 are usual, with a little more rounding."""
# case: reference=matmul device=any backend=cpp expect=ok

import torch
import torch.nn as nn


def product(a, b, levels):
    if not levels or any(size % 2 for size in (*a.shape, *b.shape)):
        return a @ b
    a11, a12, a21, a22 = (part for rows in a.chunk(2) for part in rows.chunk(2, 1))
    b11, b12, b21, b22 = (part for rows in b.chunk(2) for part in rows.chunk(2, 1))
    m1 = product(a11 + a22, b11 + b22, levels - 1)
    m2 = product(a21 + a22, b11, levels - 1)
    m3 = product(a11, b12 - b22, levels - 1)
    m4 = product(a22, b21 - b11, levels - 1)
    m5 = product(a11 + a12, b22, levels - 1)
    m6 = product(a21 - a11, b11 + b12, levels - 1)
    m7 = product(a12 - a22, b21 + b22, levels - 1)
    top = torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1)
    return torch.cat([top, torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return product(a, b, 2)
