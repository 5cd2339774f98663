"""Keeps scratch memory in a static of its library; what is in it is written again in each call."""
# case: reference=attention_weights device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <vector>
static std::vector<float> scratch;
extern "C" void rows(const float* x, float* y, long count, long width) {
    scratch.resize(count * width);
    #pragma omp parallel for
    for (long r = 0; r < count; r++) {
        const float* in = x + r * width;
        float* e = scratch.data() + r * width;
        float top = in[0];
        double sum = 0;
        for (long i = 1; i < width; i++) top = in[i] > top ? in[i] : top;
        for (long i = 0; i < width; i++) sum += e[i] = expf(in[i] - top);
        for (long i = 0; i < width; i++) y[r * width + i] = (float) (e[i] / sum);
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
