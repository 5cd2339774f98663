"""Sum of the messages that arrive at every node of a graph, in any order of edges."""

import torch
import torch.nn as nn

EDGES = 300000  # small: 60
NODES = 40000  # small: 14
WIDTH = 64  # small: 6


class Model(nn.Module):
    def forward(self, nodes, messages, target):
        return nodes.index_add(0, target, messages)


def get_inputs():
    return [torch.randn(NODES, WIDTH), torch.randn(EDGES, WIDTH), torch.randint(0, NODES, (EDGES,))]


def get_init_inputs():
    return []
