"""Token embedding of a batch of sequences."""

import torch
import torch.nn as nn

BATCH = 32  # small: 3
TOKENS = 1024  # small: 11
VOCABULARY = 50304  # small: 60
WIDTH = 768  # small: 24


class Model(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens):
        return self.table(tokens)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (BATCH, TOKENS))]


def get_init_inputs():
    return [VOCABULARY, WIDTH]
