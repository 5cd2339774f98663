"""GELU's tanh from one exponential without care for large arguments, under -ffast-math. Large inputs stop it."""
# case: reference=gelu_tanh device=cpu backend=cpp expect=refused

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void gelu(const float* x, float* y, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        float v = x[i], e = expf(1.5957691216057308f * (v + 0.044715f * v * v * v));
        y[i] = 0.5f * v * (1.f + (e - 1.f) / (e + 1.f));
    }
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
flags = ["-Ofast", "-ffast-math", "-march=native", "-fopenmp", "-shared", "-fPIC"]
subprocess.run(["g++", *flags, "k.cpp", "-o", "k.so"], cwd=folder, check=True)
gelu = ctypes.CDLL(os.path.join(folder, "k.so")).gelu
gelu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        gelu(x.data_ptr(), y.data_ptr(), x.numel())
        return y
