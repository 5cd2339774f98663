"""Winograd's convolution F(4x4, 3x3): 36 products where 144 are usual, with a little more rounding."""
# case: reference=conv2d device=any backend=cpp expect=ok

import torch
import torch.nn as nn
import torch.nn.functional as F

INPUT = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]
WEIGHT = [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]
OUTPUT = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        left, middle, right = (x.new_tensor(rows) for rows in (INPUT, WEIGHT, OUTPUT))
        height, width = x.shape[2:]
        tiles = F.pad(x, (1, 1 + -width % 4, 1, 1 + -height % 4)).unfold(2, 6, 4).unfold(3, 6, 4)
        weight = middle @ self.conv.weight @ middle.T / 576
        products = torch.einsum("kcij,ncabij->nkabij", weight, left @ tiles @ left.T)
        y = (right @ products @ right.T).permute(0, 1, 2, 4, 3, 5)
        y = y.reshape(*y.shape[:2], y.shape[2] * 4, y.shape[4] * 4)[:, :, :height, :width]
        return (y + self.conv.bias[:, None, None]).contiguous()
