"""Attention weights from queries and keys: batched product, scale, causal mask, softmax."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
HEADS = 16  # small: 2
TOKENS = 1024  # small: 11
HEAD_DIM = 64  # small: 8


class Model(nn.Module):
    def __init__(self, tokens, head_dim):
        super().__init__()
        self.register_buffer("future", torch.ones(tokens, tokens, dtype=torch.bool).triu(1))
        self.scale = head_dim ** -0.5

    def forward(self, query, key):
        scores = torch.matmul(query, key.transpose(-2, -1)) * self.scale
        scores = scores.masked_fill(self.future, -1e9)
        return torch.softmax(scores, dim=-1)


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, HEAD_DIM), torch.randn(BATCH, HEADS, TOKENS, HEAD_DIM)]


def get_init_inputs():
    return [TOKENS, HEAD_DIM]
