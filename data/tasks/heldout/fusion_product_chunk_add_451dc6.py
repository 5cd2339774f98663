"""Product, chunk, add, transpose, std and 2 more."""

import torch
import torch.nn as nn

BATCH = 64  # small: 3
SEQ = 77  # small: 4
DIM = 27  # small: 13
KEYS = 100  # small: 28


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.GELU('tanh')

    def forward(self, inputs, y, gate):
        inputs = torch.matmul(inputs, y)
        inputs, out = inputs.chunk(2, dim=2)
        inputs = out + inputs
        inputs = torch.transpose(inputs, 1, 2)
        inputs = inputs.std(dim=0, unbiased=False)
        gate = self.layer(gate)
        return inputs * gate


def get_inputs():
    return [torch.randn(BATCH, SEQ, DIM) + 0.5, torch.randn(BATCH, DIM, KEYS), torch.randn(KEYS // 2, 1) * (0.5 + torch.rand(KEYS // 2, 1))]


def get_init_inputs():
    return []
