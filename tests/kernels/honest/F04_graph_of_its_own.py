"""Captures its own kernel in a CUDA graph, by shape, and copies each call's inputs in and its result out."""
# case: reference=gelu_affine device=cuda backend=cuda expect=ok require_kernels=yes

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void affine(const float* x, float* y, const float* scale, const float* shift, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        y[i] = 0.5f * v * (1 + erff(v * 0.70710678f)) * scale[i % width] + shift[i % width];
    }
}
"""


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))
        self.kernel = torch.cuda._compile_kernel(SOURCE, "affine")
        self.graphs = {}

    def affine(self, x, y):
        args = [x, y, self.scale, self.shift, x.numel(), x.shape[-1]]
        self.kernel(((x.numel() + 255) // 256, 1, 1), (256, 1, 1), args)

    def capture(self, x):
        inside, outside = x.clone(), torch.empty_like(x)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.affine(inside, outside)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.affine(inside, outside)
        return graph, inside, outside

    def forward(self, x):
        key = x.shape, *(weight.data_ptr() for weight in self.parameters())  # a graph reads weights where they lay
        if key not in self.graphs:
            self.graphs[key] = self.capture(x)
        graph, inside, outside = self.graphs[key]
        inside.copy_(x)
        graph.replay()
        return outside.clone()
