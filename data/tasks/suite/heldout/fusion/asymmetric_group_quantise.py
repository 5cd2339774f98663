"""Weight quantisation to four bits: range of every group, scale and zero point, round, clip, and back to float."""

import torch
import torch.nn as nn

GROUPS = 130000  # small: 11
GROUP = 128  # small: 16
LEVELS = 15


class Model(nn.Module):
    def forward(self, weight):
        low, high = weight.amin(dim=1, keepdim=True), weight.amax(dim=1, keepdim=True)
        step = (high - low).clamp(min=1e-5) / LEVELS
        zero = torch.round(-low / step)
        code = torch.clamp(torch.round(weight / step) + zero, 0, LEVELS)
        return (code - zero) * step


def get_inputs():
    return [torch.randn(GROUPS, GROUP) * torch.exp(torch.randn(GROUPS, 1)) + torch.randn(GROUPS, 1)]


def get_init_inputs():
    return []
