"""Two stacked LSTM layers over a sequence, the last output through a linear layer."""

import torch
import torch.nn as nn

BATCH = 32  # small: 3
TIME = 64  # small: 6
FEATURES = 128  # small: 7
HIDDEN = 256  # small: 8
CLASSES = 40  # small: 5


class Model(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        outputs, _ = self.lstm(x)
        return self.head(outputs[:, -1])


def get_inputs():
    return [torch.randn(BATCH, TIME, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN, CLASSES]
