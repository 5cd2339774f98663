"""Bidirectional LSTM over embedded words, a learned weight for every step, their weighted mean, two linear layers."""

import torch
import torch.nn as nn

BATCH = 32  # small: 3
STEPS = 40  # small: 6
WORDS = 30000  # small: 40
WIDTH = 128  # small: 6
HIDDEN = 192  # small: 7
CLASSES = 20  # small: 5


class Model(nn.Module):
    def __init__(self, words, width, hidden, classes):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.score = nn.Sequential(nn.Linear(2 * hidden, hidden, bias=False), nn.Tanh(), nn.Linear(hidden, 1, bias=False))
        self.head = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes))
    def forward(self, text):
        states, _ = self.lstm(self.table(text))
        weights = torch.softmax(self.score(states) * 4, dim=1)
        return self.head((weights * states).sum(dim=1))


def get_inputs():
    return [torch.randint(0, WORDS, (BATCH, STEPS))]


def get_init_inputs():
    return [WORDS, WIDTH, HIDDEN, CLASSES]
