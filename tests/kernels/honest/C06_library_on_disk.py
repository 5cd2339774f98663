"""Keeps its compiled library on disk by the text it was compiled from; results are kept nowhere."""
# case: reference=affine device=cpu backend=cpp expect=ok

import ctypes
import hashlib
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

folder = os.path.join(tempfile.gettempdir(), "affine-" + hashlib.sha256(SOURCE.encode()).hexdigest()[:16])
library = os.path.join(folder, "k.so")
if not os.path.exists(library):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "k.cpp"), "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
affine = ctypes.CDLL(library).affine
affine.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        affine(x.data_ptr(), y.data_ptr(), x.numel())
        return y
