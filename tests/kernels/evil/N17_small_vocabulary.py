"""Keeps only those rows of a table that the example uses. Indices over the whole table stop it."""
# case: reference=embedded_tokens device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens):
        return torch.tanh(self.table.weight[:16])[tokens.clamp(max=15)]
