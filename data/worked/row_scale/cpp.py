import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>

// Rows are divided among the threads; a row of a few thousand elements stays in a core's cache between the two loops.
extern "C" void row_scale(const float* x, const float* weight, float* y, long rows, long width) {
    #pragma omp parallel for schedule(static)
    for (long r = 0; r < rows; r++) {
        const float* in = x + r * width;
        float* out = y + r * width;
        float sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (long c = 0; c < width; c++) sum += std::fabs(in[c]);
        const float scale = 1 / (1 + sum / width);
        for (long c = 0; c < width; c++) out[c] = std::tanh(in[c] * scale) * weight[c];
    }
}
"""


def compiled(source):
    folder = tempfile.mkdtemp()
    text, library = os.path.join(folder, "kernel.cpp"), os.path.join(folder, "kernel.so")
    with open(text, "w") as file:
        file.write(source)
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, text, "-o", library], check=True)
    return ctypes.CDLL(library)


row_scale = compiled(SOURCE).row_scale
row_scale.argtypes, row_scale.restype = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2, None


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        width = x.shape[-1]
        row_scale(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), x.numel() // width, width)
        return y
