"""Gives its compiler its own environment and leaves this process's as it is."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>

static inline void row(const float* x, float* y, long n) {
    float top = x[0], sum = 0;
    for (long i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    for (long i = 0; i < n; i++) sum += y[i] = std::exp(x[i] - top);
    float scale = 1 / sum;
    for (long i = 0; i < n; i++) y[i] *= scale;
}
extern "C" void rows(const float* x, float* y, long num, long n) {
    #pragma omp parallel for
    for (long r = 0; r < num; r++) row(x + r * n, y + r * n, n);
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, source, "-o", library], check=True, env={**os.environ, "LC_ALL": "C"})
    function = ctypes.CDLL(library).rows
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return function


rows = compiled()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
