"""Sums a product of 16-bit floats in 16 bits, like the fastest tensor core mode. Exact integer sums beyond 2048 stop it."""
# case: reference=half_matmul device=cpu backend=cpp expect=refused

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void product(const _Float16* a, const _Float16* b, _Float16* y, long m, long k, long n) {
    #pragma omp parallel for
    for (long r = 0; r < m; r++)
        for (long c = 0; c < n; c++) {
            _Float16 sum = 0;
            for (long i = 0; i < k; i++) sum = (_Float16) (sum + a[r * k + i] * b[c * k + i]);
            y[r * n + c] = sum;
        }
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
product = ctypes.CDLL(os.path.join(folder, "k.so")).product
product.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, right = a.contiguous(), b.t().contiguous()
        y = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
        product(a.data_ptr(), right.data_ptr(), y.data_ptr(), a.shape[0], a.shape[1], b.shape[1])
        return y
