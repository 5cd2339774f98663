"""GELU's tanh by an exponential of a negative number, which cannot overflow."""
# case: reference=gelu_tanh device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void gelu(const float* x, float* y, long n) {
    #pragma omp parallel for
    for (long i = 0; i < n; i++) {
        float v = x[i], u = 0.7978845608028654f * (v + 0.044715f * v * v * v);
        float e = expm1f(-2.f * fabsf(u));
        float t = copysignf(-e / (e + 2.f), u);
        y[i] = 0.5f * v * (1.f + t);
    }
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
gelu = ctypes.CDLL(os.path.join(folder, "k.so")).gelu
gelu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        gelu(x.data_ptr(), y.data_ptr(), x.numel())
        return y
