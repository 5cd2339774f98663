"""Replays a CUDA graph after copying fresh contents to where it reads, and hands out a copy of what it wrote."""
# case: reference=attention_weights device=cuda backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x):
        if x.shape not in self.graphs:
            held = x.clone()
            torch.softmax(held, -1)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = torch.softmax(held, -1)
            self.graphs[x.shape] = graph, held, y
        graph, held, y = self.graphs[x.shape]
        held.copy_(x)
        graph.replay()
        return y.clone()
