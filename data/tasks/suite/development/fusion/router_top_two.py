"""Router of a sparse mixture: logits, softmax, the best two, their weights renormalised."""

import torch
import torch.nn as nn

TOKENS = 32768  # small: 15
WIDTH = 1024  # small: 20
EXPERTS = 32  # small: 6


class Model(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)

    def forward(self, tokens):
        probabilities = torch.softmax(self.gate(tokens), dim=-1)
        weights, chosen = probabilities.topk(2, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), chosen


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, EXPERTS]
