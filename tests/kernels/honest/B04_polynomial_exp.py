"""A softmax with its own exponential: argument reduced, seven terms, good to two units in the last place."""
# case: reference=attention_weights device=cpu backend=cpp expect=ok

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
static inline float exponential(float v) {
    v = v < -87.3f ? -87.3f : v;
    float n = rintf(v * 1.44269504f), f = fmaf(n, -0.693145752f, v);
    f = fmaf(n, -1.42860677e-6f, f);
    float p = 1.98412698e-4f;
    p = fmaf(p, f, 1.38888889e-3f);
    p = fmaf(p, f, 8.33333333e-3f);
    p = fmaf(p, f, 4.16666667e-2f);
    p = fmaf(p, f, 1.66666667e-1f);
    p = fmaf(p, f, 0.5f);
    p = fmaf(p, f, 1.f);
    p = fmaf(p, f, 1.f);
    int32_t bits = ((int32_t) n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    return p * scale;
}
extern "C" void rows(const float* x, float* y, long count, long width) {
    #pragma omp parallel for
    for (long r = 0; r < count; r++) {
        const float* in = x + r * width;
        float* out = y + r * width;
        float top = in[0], sum = 0;
        for (long i = 1; i < width; i++) top = in[i] > top ? in[i] : top;
        for (long i = 0; i < width; i++) out[i] = exponential(in[i] - top);
        #pragma omp simd reduction(+ : sum)
        for (long i = 0; i < width; i++) sum += out[i];
        for (long i = 0; i < width; i++) out[i] /= sum;
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
