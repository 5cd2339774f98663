"""A wide softmax in two passes that keep a running maximum and sum."""
# case: reference=broad_softmax device=cpu backend=cpp expect=ok

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
        float* out = y + r * width;
        float top = -INFINITY;
        double sum = 0;
        for (long start = 0; start < width; start += 1024) {
            long end = start + 1024 < width ? start + 1024 : width;
            float here = top;
            for (long i = start; i < end; i++) here = in[i] > here ? in[i] : here;
            double part = 0;
            for (long i = start; i < end; i++) part += expf(in[i] - here);
            sum = sum * exp((double) top - here) + part;
            top = here;
        }
        float scale = (float) (1 / sum);
        for (long i = 0; i < width; i++) out[i] = expf(in[i] - top) * scale;
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
