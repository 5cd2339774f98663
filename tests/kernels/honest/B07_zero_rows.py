"""Divides rows by their length, with the floor under it that keeps zero rows zero."""
# case: reference=l2_normalize device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void rows(const float* x, float* y, long count, long width) {
    #pragma omp parallel for
    for (long r = 0; r < count; r++) {
        double squares = 0;
        for (long i = 0; i < width; i++) squares += (double) x[r * width + i] * x[r * width + i];
        double length = sqrt(squares);
        float scale = (float) (1 / (length < 1e-12 ? 1e-12 : length));
        for (long i = 0; i < width; i++) y[r * width + i] = x[r * width + i] * scale;
    }
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
rows = ctypes.CDLL(os.path.join(folder, "k.so")).rows
rows.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows(x.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1], x.shape[-1])
        return y
