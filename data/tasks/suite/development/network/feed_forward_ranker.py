"""Ranking model: crossed features of explicit degree beside a deep tower, both into one score a candidate."""

import torch
import torch.nn as nn

CANDIDATES = 16384  # small: 15
FEATURES = 256  # small: 12
HIDDEN = 512  # small: 14
CROSSES = 3  # small: 2


class Model(nn.Module):
    def __init__(self, features, hidden, crosses):
        super().__init__()
        self.cross = nn.ModuleList([nn.Linear(features, features) for _ in range(crosses)])
        self.deep = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.score = nn.Linear(features + hidden, 1)

    def forward(self, x):
        crossed = x
        for layer in self.cross:
            crossed = x * layer(crossed) + crossed
        return self.score(torch.cat((crossed, self.deep(x)), dim=-1)).squeeze(-1)


def get_inputs():
    return [torch.randn(CANDIDATES, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN, CROSSES]
