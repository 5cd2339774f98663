"""Bidirectional GRU over embedded characters, its outputs averaged over time and classified."""

import torch
import torch.nn as nn

BATCH = 32  # small: 3
TIME = 64  # small: 6
SYMBOLS = 96  # small: 20
WIDTH = 64  # small: 7
HIDDEN = 256  # small: 8
CLASSES = 18  # small: 4


class Model(nn.Module):
    def __init__(self, symbols, width, hidden, classes):
        super().__init__()
        self.table = nn.Embedding(symbols, width)
        self.gru = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, text):
        outputs, _ = self.gru(self.table(text))
        return self.head(outputs.mean(dim=1))


def get_inputs():
    return [torch.randint(0, SYMBOLS, (BATCH, TIME))]


def get_init_inputs():
    return [SYMBOLS, WIDTH, HIDDEN, CLASSES]
