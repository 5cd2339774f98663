"""Writes C++ for the width it meets, as a compiler would, and compiles it itself."""
# case: reference=gelu_affine device=cpu backend=cpp expect=ok require_kernels=yes

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

TEMPLATE = r"""
#include <cmath>
extern "C" void affine(const float* x, float* y, const float* scale, const float* shift, long num) {
    constexpr long n = @WIDTH@;
    #pragma omp parallel for
    for (long r = 0; r < num; r++)
        for (long i = 0; i < n; i++) {
            float v = x[r * n + i];
            y[r * n + i] = 0.5f * v * (1 + std::erf(v * 0.70710678f)) * scale[i] + shift[i];
        }
}
"""


def compiled(width):
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(TEMPLATE.replace("@WIDTH@", str(width)))
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, source, "-o", library], check=True)
    function = ctypes.CDLL(library).affine
    function.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_long]
    return function


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))
        self.kernels = {}

    def forward(self, x):
        width = x.shape[-1]
        if width not in self.kernels:
            self.kernels[width] = compiled(width)
        y = torch.empty_like(x)
        scale, shift = self.scale.data_ptr(), self.shift.data_ptr()
        self.kernels[width](x.data_ptr(), y.data_ptr(), scale, shift, x.numel() // width)
        return y
