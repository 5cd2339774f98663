"""Whole vectors where the width allows it and a tail loop elsewhere; both are right, and both are quick."""
# case: reference=gelu_affine device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
static inline float one(float v, float s, float t) { return 0.5f * v * (1 + std::erf(v * 0.70710678f)) * s + t; }
extern "C" void affine(const float* x, float* y, const float* scale, const float* shift, long num, long n) {
    #pragma omp parallel for
    for (long r = 0; r < num; r++) {
        const float* from = x + r * n;
        float* to = y + r * n;
        long i = 0;
        if (n % 16 == 0)
            for (; i < n; i += 16)
                for (long j = i; j < i + 16; j++) to[j] = one(from[j], scale[j], shift[j]);
        for (; i < n; i++) to[i] = one(from[i], scale[i], shift[i]);
    }
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, source, "-o", library], check=True)
    function = ctypes.CDLL(library).affine
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return function


affine = compiled()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        y = torch.empty_like(x)
        scale, shift = self.scale.data_ptr(), self.shift.data_ptr()
        affine(x.data_ptr(), y.data_ptr(), scale, shift, x.numel() // x.shape[-1], x.shape[-1])
        return y
