"""A direct 3x3 convolution in float32 throughout."""
# case: reference=conv2d device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void conv(const float* x, const float* weight, const float* bias, float* y, long batch, long channels, long height, long width) {
    #pragma omp parallel for collapse(2)
    for (long n = 0; n < batch; n++)
        for (long o = 0; o < channels; o++) {
            float* out = y + (n * channels + o) * height * width;
            for (long i = 0; i < height * width; i++) out[i] = bias[o];
            for (long c = 0; c < channels; c++)
                for (long u = 0; u < 3; u++)
                    for (long v = 0; v < 3; v++) {
                        float w = weight[((o * channels + c) * 3 + u) * 3 + v];
                        const float* in = x + (n * channels + c) * height * width;
                        long left = v == 0, right = width - (v == 2);
                        for (long i = u == 0; i < height - (u == 2); i++)
                            for (long j = left; j < right; j++) out[i * width + j] += w * in[(i + u - 1) * width + j + v - 1];
                    }
        }
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
conv = ctypes.CDLL(os.path.join(folder, "k.so")).conv
conv.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 4


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        conv(x.data_ptr(), self.conv.weight.data_ptr(), self.conv.bias.data_ptr(), y.data_ptr(), *x.shape)
        return y
