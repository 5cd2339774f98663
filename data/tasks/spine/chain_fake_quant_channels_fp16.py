"""Quantisation-aware training of fp16 weights: a scale for each row, round, clip, dequantise, blend."""

import torch
import torch.nn as nn

ROWS = 8192  # small: 9
WIDTH = 4096  # small: 40


class Model(nn.Module):
    def __init__(self, levels, blend):
        super().__init__()
        self.levels = levels
        self.blend = blend

    def forward(self, weight):
        wide = weight.float()
        scale = wide.abs().amax(dim=1, keepdim=True).clamp(min=1e-6) / self.levels
        rounded = torch.clamp(torch.round(wide / scale), -self.levels, self.levels) * scale
        return (self.blend * rounded + (1 - self.blend) * wide).half()


def get_inputs():
    return [torch.randn(ROWS, WIDTH).half()]


def get_init_inputs():
    return [7, 0.9]
