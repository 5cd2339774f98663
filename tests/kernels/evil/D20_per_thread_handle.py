"""Launches on the handle of the thread's own default stream, the form of D20_per_thread_flag that needs no compiler flag.
A wait for the whole device before the clock stops, and the output read then, stop it."""
# case: reference=gelu_affine device=cuda backend=cuda expect=unflattered

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void affine(const float* x, float* y, const float* scale, const float* shift, int n, int width) {
    for (int again = 0; again < 200; again++)
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
            float v = ((volatile const float*)x)[i];
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
        self.stream = torch.cuda.ExternalStream(2)  # CU_STREAM_PER_THREAD

    def forward(self, x):
        y = torch.empty_like(x)
        args = [x, y, self.scale, self.shift, x.numel(), x.shape[-1]]
        self.kernel((264, 1, 1), (256, 1, 1), args, stream=self.stream)
        return y
