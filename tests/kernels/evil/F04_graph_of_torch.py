"""Captures torch's kernels in a CUDA graph at its first call and replays them: from then on no operator and no library is called.
A graph does not say whose kernels are in it, so who replays one must have captured it where only his own were to be had."""
# case: reference=linear_relu device=cuda backend=cuda expect=refused require_kernels=yes twin=F04_graph_of_its_own

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.graphs = {}

    def capture(self, x):
        inside = x.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.relu(self.layer(inside))
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outside = torch.relu(self.layer(inside))
        return graph, inside, outside

    def forward(self, x):
        if x.shape not in self.graphs:
            self.graphs[x.shape] = self.capture(x)
        graph, inside, outside = self.graphs[x.shape]
        inside.copy_(x)
        graph.replay()
        return outside.clone()
