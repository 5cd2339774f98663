"""Its own pass over a thousand numbers, where most of a call is the way in and out."""
# case: reference=tiny_affine device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void affine(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++) y[i] = (x[i] < 0 ? 0 : x[i]) * 2 + 1;
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library], check=True)
    function = ctypes.CDLL(library).affine
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    return function


affine = compiled()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        affine(x.data_ptr(), y.data_ptr(), x.numel())
        return y
