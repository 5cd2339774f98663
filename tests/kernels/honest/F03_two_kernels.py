"""A small kernel finds the rows' maxima and sums, a larger one uses them: both are needed."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok require_kernels=yes

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>

extern "C" void rows(const float* x, float* y, long num, long n);
static void statistics(const float* x, float* top, float* sum, long num, long n) {
    #pragma omp parallel for
    for (long r = 0; r < num; r++) {
        float t = x[r * n], s = 0;
        for (long i = 1; i < n; i++) t = x[r * n + i] > t ? x[r * n + i] : t;
        for (long i = 0; i < n; i++) s += std::exp(x[r * n + i] - t);
        top[r] = t, sum[r] = s;
    }
}
extern "C" void rows(const float* x, float* y, long num, long n) {
    float* top = new float[2 * num];
    statistics(x, top, top + num, num, n);
    #pragma omp parallel for
    for (long r = 0; r < num; r++)
        for (long i = 0; i < n; i++) y[r * n + i] = std::exp(x[r * n + i] - top[r]) / top[num + r];
    delete[] top;
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, source, "-o", library], check=True)
    function = ctypes.CDLL(library).rows
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return function


rows = compiled()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
