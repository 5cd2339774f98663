"""Keeps argument lists by the address of the input; what lies there is read again in each call."""
# case: reference=affine device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void affine(const float* x, float* y, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) y[i] = (x[i] < 0 ? 0 : x[i]) * 2 + 1;
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
affine = ctypes.CDLL(os.path.join(folder, "k.so")).affine
affine.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = {}

    def forward(self, x):
        key = (x.data_ptr(), x.shape)
        if key not in self.calls:
            y = torch.empty_like(x)
            self.calls[key] = y, (x.data_ptr(), y.data_ptr(), x.numel())
        y, arguments = self.calls[key]
        affine(*arguments)
        return y.clone()
