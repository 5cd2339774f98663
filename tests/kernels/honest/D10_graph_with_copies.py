"""Captures a CUDA graph on its own buffers, by shape, and copies each call's inputs in and its result out."""
# case: reference=tanh_chain device=cuda backend=cuda expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        self.third = nn.Linear(width, width, bias=False)
        self.graphs = {}

    def chain(self, x):
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.second(x))
        return torch.tanh(self.third(x))

    def capture(self, x):
        inside = x.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.chain(inside)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outside = self.chain(inside)
        return graph, inside, outside

    def forward(self, x):
        key = x.shape, *(weight.data_ptr() for weight in self.parameters())  # a graph reads weights where they lay
        if key not in self.graphs:
            self.graphs[key] = self.capture(x)
        graph, inside, outside = self.graphs[key]
        inside.copy_(x)
        graph.replay()
        return outside.clone()
