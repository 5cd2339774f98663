"""Multiplies matrices by Strassen's algorithm, which spreads what is not finite further than sums of products do."""
# case: reference=matmul device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        rows, depth, columns = (size // 2 for size in (a.shape[0], a.shape[1], b.shape[1]))
        if a.shape[0] % 2 or a.shape[1] % 2 or b.shape[1] % 2:
            return a @ b
        a, b = a.double(), b.double()
        a11, a12, a21, a22 = a[:rows, :depth], a[:rows, depth:], a[rows:, :depth], a[rows:, depth:]
        b11, b12, b21, b22 = b[:depth, :columns], b[:depth, columns:], b[depth:, :columns], b[depth:, columns:]
        m1, m2, m3 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
        m4, m5, m6, m7 = a22 @ (b21 - b11), (a11 + a12) @ b22, (a21 - a11) @ (b11 + b12), (a12 - a22) @ (b21 + b22)
        top = torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1)
        return torch.cat([top, torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)], 0).float()
