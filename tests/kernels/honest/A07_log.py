"""A logarithm that is minus infinity at and below zero, as it should be."""
# case: reference=log_floored device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void logarithm(const float* x, float* y, long n) {
    #pragma omp parallel for
    for (long i = 0; i < n; i++) y[i] = x[i] <= 0 ? -INFINITY : logf(x[i]);
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
logarithm = ctypes.CDLL(os.path.join(folder, "k.so")).logarithm
logarithm.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        logarithm(x.data_ptr(), y.data_ptr(), x.numel())
        return y
