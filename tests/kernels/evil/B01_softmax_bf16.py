"""A C++ softmax that keeps its exponentials as bfloat16. A tolerance below that rounding stops it."""
# case: reference=attention_weights device=cpu backend=cpp expect=refused

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
static uint16_t narrow(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
static float wide(uint16_t half) {
    uint32_t bits = (uint32_t) half << 16;
    float v;
    memcpy(&v, &bits, 4);
    return v;
}
extern "C" void rows(const float* x, float* y, long count, long width) {
    #pragma omp parallel for
    for (long r = 0; r < count; r++) {
        const float* in = x + r * width;
        std::vector<uint16_t> e(width);
        float top = in[0], sum = 0;
        for (long i = 1; i < width; i++) top = in[i] > top ? in[i] : top;
        for (long i = 0; i < width; i++) { e[i] = narrow(expf(in[i] - top)); sum += wide(e[i]); }
        for (long i = 0; i < width; i++) y[r * width + i] = wide(e[i]) / sum;
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
        y = torch.empty_like(x)
        rows(x.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1], x.shape[-1])
        return y
