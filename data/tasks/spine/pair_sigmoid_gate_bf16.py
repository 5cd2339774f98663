"""Output gate of linear attention: sigmoid of one bfloat16 tensor times another."""

import torch
import torch.nn as nn

TOKENS = 16384  # small: 9
WIDTH = 2048  # small: 40


class Model(nn.Module):
    def forward(self, gate, value):
        return torch.sigmoid(gate) * value


def get_inputs():
    return [torch.randn(TOKENS, WIDTH).bfloat16(), torch.randn(TOKENS, WIDTH).bfloat16()]


def get_init_inputs():
    return []
