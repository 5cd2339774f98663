"""A layer norm in one pass over each row that merges the spread of blocks, without cancellation."""
# case: reference=layer_norm device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void rows(const float* x, const float* weight, const float* bias, float* y, long count, long width, float eps) {
    #pragma omp parallel for
    for (long r = 0; r < count; r++) {
        const float* in = x + r * width;
        float* out = y + r * width;
        double mean = 0, spread = 0;
        for (long start = 0; start < width; start += 64) {
            long n = width - start < 64 ? width - start : 64;
            double sum = 0, squares = 0;
            for (long i = 0; i < n; i++) sum += in[start + i];
            double here = sum / n;
            for (long i = 0; i < n; i++) squares += (in[start + i] - here) * (in[start + i] - here);
            double step = here - mean;
            spread += squares + step * step * start * n / (start + n);
            mean += step * n / (start + n);
        }
        double scale = 1 / sqrt(spread / width + eps);
        for (long i = 0; i < width; i++) out[i] = (float) ((in[i] - mean) * scale) * weight[i] + bias[i];
    }
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
rows = ctypes.CDLL(os.path.join(folder, "k.so")).rows
rows.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2 + [ctypes.c_float]


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = x.contiguous()
        y, norm = torch.empty_like(x), self.norm
        pointers = (x.data_ptr(), norm.weight.data_ptr(), norm.bias.data_ptr(), y.data_ptr())
        rows(*pointers, x.numel() // x.shape[-1], x.shape[-1], norm.eps)
        return y
