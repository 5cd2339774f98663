"""Mixture of experts: the best two of eight by a router, every expert run on all tokens, mixed by scattered weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 1024  # small: 9
WIDTH = 256  # small: 10
HIDDEN = 512  # small: 12
EXPERTS = 8  # small: 4


class Model(nn.Module):
    def __init__(self, width, hidden, experts):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, tokens):
        scores = self.router(tokens)
        best, chosen = scores.topk(2, dim=-1)
        weights = torch.zeros_like(scores).scatter(1, chosen, torch.softmax(best, dim=-1))
        hidden = F.silu(torch.einsum("tw,ewh->eth", tokens, self.up))
        return torch.einsum("eth,ehw,te->tw", hidden, self.down, weights)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN, EXPERTS]
