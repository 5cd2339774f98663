"""Two LSTM layers in both directions over long sequences; a linear layer reads every step."""

import torch
import torch.nn as nn

BATCH = 10  # small: 2
STEPS = 448  # small: 6
WIDTH = 160  # small: 5
HIDDEN = 224  # small: 7
LAYERS = 2  # small: 2
LABELS = 48  # small: 6


class Model(nn.Module):
    def __init__(self, width, hidden, layers, labels):
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, labels)
    def forward(self, x):
        out, _ = self.lstm(x)
        return self.head(out)


def get_inputs():
    return [torch.randn(BATCH, STEPS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN, LAYERS, LABELS]
