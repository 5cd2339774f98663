"""A log-softmax that never takes the logarithm of an underflowed number."""
# case: reference=log_softmax device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void rows(const float* x, float* y, long count, long width) {
    #pragma omp parallel for
    for (long r = 0; r < count; r++) {
        const float* in = x + r * width;
        float top = in[0];
        for (long i = 1; i < width; i++) top = in[i] > top ? in[i] : top;
        double sum = 0;
        for (long i = 0; i < width; i++) sum += expf(in[i] - top);
        float off = (float) log(sum);
        for (long i = 0; i < width; i++) y[r * width + i] = in[i] - top - off;
    }
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
rows = ctypes.CDLL(os.path.join(folder, "k.so")).rows
rows.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows(x.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1], x.shape[-1])
        return y
