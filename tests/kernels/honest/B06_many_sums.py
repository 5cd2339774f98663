"""Means of long rows from sixteen partial sums a block, and blocks added in double."""
# case: reference=mean_rows device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void means(const float* x, float* y, long count, long width) {
    #pragma omp parallel for
    for (long r = 0; r < count; r++) {
        const float* in = x + r * width;
        double total = 0;
        for (long start = 0; start < width; start += 4096) {
            long end = start + 4096 < width ? start + 4096 : width;
            float sum = 0;
            #pragma omp simd reduction(+ : sum)
            for (long i = start; i < end; i++) sum += in[i];
            total += sum;
        }
        y[r] = (float) (total / width);
    }
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
means = ctypes.CDLL(os.path.join(folder, "k.so")).means
means.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0])
        means(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
