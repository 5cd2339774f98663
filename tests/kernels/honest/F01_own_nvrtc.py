"""Its own CUDA kernel, compiled at load, does all of it; torch only allocates."""
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

    def forward(self, x):
        y = torch.empty_like(x)
        args = [x, y, self.scale, self.shift, x.numel(), x.shape[-1]]
        self.kernel(((x.numel() + 255) // 256, 1, 1), (256, 1, 1), args)
        return y
