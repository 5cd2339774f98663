"""Attention pooling: a learned score for every token, softmax over the tokens, weighted sum."""

import torch
import torch.nn as nn

BATCH = 64  # small: 2
TOKENS = 1024  # small: 17
WIDTH = 512  # small: 18


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Parameter(torch.randn(width) / width**0.5 * 2)

    def forward(self, tokens):
        weights = torch.softmax(torch.matmul(tokens, self.query), dim=1)
        return (weights.unsqueeze(-1) * tokens).sum(dim=1)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
