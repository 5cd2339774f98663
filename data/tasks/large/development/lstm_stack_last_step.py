"""Four LSTM layers over a batch of sequences; a linear layer reads the last step."""

import torch
import torch.nn as nn

BATCH = 10  # small: 2
STEPS = 256  # small: 6
WIDTH = 128  # small: 5
HIDDEN = 256  # small: 7
LAYERS = 4  # small: 2


class Model(nn.Module):
    def __init__(self, width, hidden, layers):
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, x, h, c):
        out, _ = self.lstm(x, (h, c))
        return self.head(out[:, -1])


def get_inputs():
    return [torch.randn(BATCH, STEPS, WIDTH), torch.randn(LAYERS, BATCH, HIDDEN), torch.randn(LAYERS, BATCH, HIDDEN)]


def get_init_inputs():
    return [WIDTH, HIDDEN, LAYERS]
