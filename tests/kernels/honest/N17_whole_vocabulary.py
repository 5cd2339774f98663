"""Gathers from the whole table, then computes in place."""
# case: reference=embedded_tokens device=any backend=cpp expect=ok

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens):
        return self.table.weight.index_select(0, tokens.reshape(-1)).tanh_().view(*tokens.shape, -1)
