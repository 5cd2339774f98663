"""Asks for more shared memory than there is, is refused, which does no harm, and continues with less."""
# case: reference=gelu_affine device=cuda backend=cuda expect=ok

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
        self.shared = None

    def launch(self, args, count, shared):
        self.kernel(((count + 255) // 256, 1, 1), (256, 1, 1), args, shared_mem=shared)

    def forward(self, x):
        y = torch.empty_like(x)
        args = [x, y, self.scale, self.shift, x.numel(), x.shape[-1]]
        if self.shared is None:
            try:
                self.launch(args, x.numel(), 1 << 20)
                self.shared = 1 << 20
            except RuntimeError:
                self.shared = 0
        self.launch(args, x.numel(), self.shared)
        return y
