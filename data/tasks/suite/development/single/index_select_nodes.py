"""Features of the nodes at the end of every edge."""

import torch
import torch.nn as nn

NODES = 100000  # small: 30
EDGES = 131072  # small: 75
WIDTH = 256  # small: 10


class Model(nn.Module):
    def forward(self, features, ends):
        return torch.index_select(features, 0, ends)


def get_inputs():
    return [torch.randn(NODES, WIDTH), torch.randint(0, NODES, (EDGES,))]


def get_init_inputs():
    return []
