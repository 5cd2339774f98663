"""Three GRU layers in both directions; the states of all steps and the last one."""

import torch
import torch.nn as nn

BATCH = 10  # small: 2
STEPS = 384  # small: 6
WIDTH = 128  # small: 5
HIDDEN = 192  # small: 7
LAYERS = 3  # small: 2


class Model(nn.Module):
    def __init__(self, width, hidden, layers):
        super().__init__()
        self.gru = nn.GRU(width, hidden, layers, bidirectional=True)

    def forward(self, x, h):
        return self.gru(x, h)


def get_inputs():
    return [torch.randn(STEPS, BATCH, WIDTH), torch.randn(2 * LAYERS, BATCH, HIDDEN)]


def get_init_inputs():
    return [WIDTH, HIDDEN, LAYERS]
