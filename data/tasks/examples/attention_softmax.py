"""Attention probabilities: scale, relative-position bias for each head, padding mask, softmax over the keys."""

import torch
import torch.nn as nn

BATCH = 4  # small: 2
HEADS = 12  # small: 3
QUERIES = 256  # small: 9
KEYS = 256  # small: 9
HEAD_DIM = 64  # small: 8


class Model(nn.Module):
    def __init__(self, heads, queries, keys, head_dim):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(1, heads, queries, keys) * 0.1)
        self.scale = head_dim ** -0.5

    def forward(self, scores, padding):
        scores = scores * self.scale + self.bias
        scores = scores.masked_fill(padding[:, None, None, :], float("-inf"))
        return torch.softmax(scores, dim=-1)


def get_inputs():
    scores = torch.randn(BATCH, HEADS, QUERIES, KEYS) * HEAD_DIM ** 0.5
    padding = torch.rand(BATCH, KEYS) < 0.2
    padding[:, 0] = False  # a row without any key would be NaN
    return [scores, padding]


def get_init_inputs():
    return [HEADS, QUERIES, KEYS, HEAD_DIM]
