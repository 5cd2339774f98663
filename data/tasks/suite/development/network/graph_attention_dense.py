"""Two layers of graph attention on dense adjacency: additive scores, leaky ReLU, softmax over neighbours, heads joined."""

import torch
import torch.nn as nn
import torch.nn.functional as F

GRAPHS = 8  # small: 2
NODES = 256  # small: 9
FEATURES = 64  # small: 6
HEADS = 4  # small: 3
DEPTH = 32  # small: 5


class Layer(nn.Module):
    def __init__(self, features, heads, depth):
        super().__init__()
        self.project = nn.Linear(features, heads * depth, bias=False)
        self.source, self.target = (nn.Parameter(torch.randn(heads, depth) / depth**0.5 * 2) for _ in range(2))

    def forward(self, x, linked):
        heads = self.project(x).unflatten(-1, self.source.shape)
        source = torch.einsum("gnhd,hd->ghn", heads, self.source)
        target = torch.einsum("gnhd,hd->ghn", heads, self.target)
        scores = F.leaky_relu(source.unsqueeze(-1) + target.unsqueeze(-2), 0.2)
        weights = scores.masked_fill(~linked.unsqueeze(1), -1e9).softmax(dim=-1)
        return F.elu(torch.einsum("ghnm,gmhd->gnhd", weights, heads).flatten(2))


class Model(nn.Module):
    def __init__(self, features, heads, depth):
        super().__init__()
        self.first = Layer(features, heads, depth)
        self.second = Layer(heads * depth, heads, depth)

    def forward(self, x, linked):
        return self.second(self.first(x, linked), linked)


def get_inputs():
    linked = (torch.rand(GRAPHS, NODES, NODES) < 0.1) | torch.eye(NODES, dtype=torch.bool)
    return [torch.randn(GRAPHS, NODES, FEATURES), linked]


def get_init_inputs():
    return [FEATURES, HEADS, DEPTH]
