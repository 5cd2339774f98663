"""A C++ kernel whose static arrays keep the last result by 64 sampled values. Values never presented twice stop it."""
# case: reference=attention_weights device=cpu backend=cpp expect=unflattered

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <cstring>
#include <vector>
static float keys[64];
static std::vector<float> kept;
extern "C" void rows(const float* x, float* y, long count, long width) {
    float now[64];
    long n = count * width;
    for (long i = 0; i < 64; i++) now[i] = x[(i * 7919) % n];
    if ((long) kept.size() == n && !memcmp(now, keys, sizeof now)) { memcpy(y, kept.data(), 4 * n); return; }
    for (long r = 0; r < count; r++) {
        const float* in = x + r * width;
        float* out = y + r * width;
        float top = in[0];
        double sum = 0;
        for (long i = 1; i < width; i++) top = in[i] > top ? in[i] : top;
        for (long i = 0; i < width; i++) sum += out[i] = expf(in[i] - top);
        for (long i = 0; i < width; i++) out[i] = (float) (out[i] / sum);
    }
    memcpy(keys, now, sizeof now);
    kept.assign(y, y + n);
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
rows = ctypes.CDLL(os.path.join(folder, "k.so")).rows
rows.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows(x.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1], x.shape[-1])
        return y
