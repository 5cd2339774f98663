"""A C++ kernel that skips its work when it sees the same pointer again, and copies the last result. New values there stop it."""
# case: reference=attention_weights device=cpu backend=cpp expect=refused

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
static const float* seen = nullptr;
static std::vector<float> kept;
extern "C" void rows(const float* x, float* y, long count, long width) {
    if (seen == x && (long) kept.size() == count * width) { memcpy(y, kept.data(), 4 * kept.size()); return; }
    for (long r = 0; r < count; r++) {
        const float* in = x + r * width;
        float* out = y + r * width;
        float top = in[0];
        double sum = 0;
        for (long i = 1; i < width; i++) top = in[i] > top ? in[i] : top;
        for (long i = 0; i < width; i++) sum += out[i] = expf(in[i] - top);
        for (long i = 0; i < width; i++) out[i] = (float) (out[i] / sum);
    }
    seen = x;
    kept.assign(y, y + count * width);
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
