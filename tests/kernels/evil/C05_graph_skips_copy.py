"""Replays a CUDA graph on copies of its inputs, but copies only when an address has changed. New values there stop it."""
# case: reference=attention_weights device=cuda backend=cpp expect=refused

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
            self.graphs[x.shape] = [graph, y, held, 0]
        entry = self.graphs[x.shape]
        if entry[3] != x.data_ptr():
            entry[2].copy_(x)
            entry[3] = x.data_ptr()
            entry[0].replay()
        return entry[1]
