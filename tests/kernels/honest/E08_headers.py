"""Includes the compiler's own headers and a header that it wrote next to its source."""
# case: reference=affine device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <algorithm>
#include <omp.h>
#include "k.h"
extern "C" void affine(const float* x, float* y, long n) {
    #pragma omp parallel
    {
        long part = (n + omp_get_num_threads() - 1) / omp_get_num_threads(), start = part * omp_get_thread_num();
        for (long i = start; i < std::min(n, start + part); i++) y[i] = step(x[i]);
    }
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
with open(os.path.join(folder, "k.h"), "w") as file:
    file.write("static inline float step(float v) { return (v < 0 ? 0 : v) * 2 + 1; }\n")
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
affine = ctypes.CDLL(os.path.join(folder, "k.so")).affine
affine.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        affine(x.data_ptr(), y.data_ptr(), x.numel())
        return y
