"""Input of an encoder: token and position embeddings added and normalised."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
TOKENS = 512  # small: 9
VOCABULARY = 30522  # small: 50
WIDTH = 1024  # small: 24


class Model(nn.Module):
    def __init__(self, vocabulary, tokens, width):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.5 * torch.randn(tokens, width))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)

    def forward(self, tokens):
        return self.norm(self.words(tokens) + self.positions)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (BATCH, TOKENS))]


def get_init_inputs():
    return [VOCABULARY, TOKENS, WIDTH]
