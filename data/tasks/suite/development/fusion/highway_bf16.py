"""Highway layer in bfloat16: a sigmoid gate mixes a transformed input with the input itself."""

import torch
import torch.nn as nn

TOKENS = 2048  # small: 7
WIDTH = 1024  # small: 32


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.transform = nn.Linear(width, width, dtype=torch.bfloat16)
        self.gate = nn.Linear(width, width, dtype=torch.bfloat16)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


def get_inputs():
    return [torch.randn(TOKENS, WIDTH).bfloat16()]


def get_init_inputs():
    return [WIDTH]
