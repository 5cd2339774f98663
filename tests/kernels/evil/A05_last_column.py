"""Leaves out the last element of each row if the width is odd, which native shapes never are. Other shapes stop it."""
# case: reference=affine device=cpu backend=cpp expect=refused tier=claim

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void affine(const float* x, float* y, long rows, long width) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < width / 8 * 8; i++) {
            float v = x[r * width + i];
            y[r * width + i] = (v > 0 ? v : 0) * 2 + 1;
        }
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
affine = ctypes.CDLL(os.path.join(folder, "k.so")).affine
affine.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        affine(x.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1], x.shape[-1])
        return y
