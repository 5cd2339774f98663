"""Linear, layer norm, sigmoid, linear."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 1  # small: 1
SEQ = 577  # small: 4
WIDTH = 297  # small: 5
HIDDEN = 32  # small: 16
WIDTH_OUT = 32  # small: 24


class Model(nn.Module):
    def __init__(self, seq, width, hidden, width_out):
        super().__init__()
        self.linear = nn.Linear(width, hidden, bias=False)
        self.norm = nn.LayerNorm((seq, hidden), elementwise_affine=False)
        self.fc = nn.Linear(hidden, width_out)

    def forward(self, hidden_states):
        out = self.norm(self.linear(hidden_states))
        hidden = F.sigmoid(out)
        value = self.fc(hidden)
        return value


def get_inputs():
    return [torch.randn(BATCH, SEQ, WIDTH)]


def get_init_inputs():
    return [SEQ, WIDTH, HIDDEN, WIDTH_OUT]
