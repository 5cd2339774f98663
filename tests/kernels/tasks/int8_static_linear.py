"""A linear layer of 8-bit integers with zero points, whose result is quantised again."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, w, bias, x_scale, x_zero, w_scale, y_scale, y_zero):
        wide = (x.float() - x_zero) * x_scale
        y = F.linear(wide, w.float() * w_scale[:, None], bias)
        return (torch.round(y / y_scale) + y_zero).clamp(0, 255).to(torch.uint8)


def get_inputs():
    x = torch.randint(0, 256, (48, 256), dtype=torch.uint8)
    w = torch.randint(-127, 128, (64, 256), dtype=torch.int8)
    return [x, w, torch.randn(64) * 0.1, 0.02, 128, torch.full((64,), 0.001) * (1 + 0.1 * torch.rand(64)), 0.03, 128]


def get_init_inputs():
    return []
