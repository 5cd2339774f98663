"""Token and position embeddings, summed and normalised."""

import torch
import torch.nn as nn

BATCH = 16  # cpu: 8  # small: 2
LENGTH = 1024  # cpu: 256  # small: 5
WIDTH = 1024  # cpu: 512  # small: 16
VOCABULARY = 32000  # cpu: 8192  # small: 37


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)

    def forward(self, ids):
        return self.norm(self.tokens(ids) + self.positions)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (BATCH, LENGTH))]


def get_init_inputs():
    return []
