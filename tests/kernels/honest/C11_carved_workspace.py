"""Carves two scratch arrays from one allocation by pointer arithmetic and reads only what it wrote there."""
# case: reference=log_softmax device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void rows(const float* x, float* y, float* scratch, long count, long width) {
    float* tops = scratch;
    double* sums = (double*) (scratch + (count + 15) / 16 * 16);
    #pragma omp parallel for
    for (long r = 0; r < count; r++) {
        const float* in = x + r * width;
        tops[r] = in[0];
        for (long i = 1; i < width; i++) tops[r] = in[i] > tops[r] ? in[i] : tops[r];
        sums[r] = 0;
        for (long i = 0; i < width; i++) sums[r] += expf(in[i] - tops[r]);
    }
    #pragma omp parallel for
    for (long r = 0; r < count; r++)
        for (long i = 0; i < width; i++) y[r * width + i] = x[r * width + i] - tops[r] - (float) log(sums[r]);
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
rows = ctypes.CDLL(os.path.join(folder, "k.so")).rows
rows.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        count = x.numel() // x.shape[-1]
        y, scratch = torch.empty_like(x), torch.empty((count + 15) // 16 * 16 + 2 * count)
        rows(x.data_ptr(), y.data_ptr(), scratch.data_ptr(), count, x.shape[-1])
        return y
