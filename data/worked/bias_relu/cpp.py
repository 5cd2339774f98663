import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void bias_relu(const float* x, const float* bias, float* y, long rows, long width) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < width; c++) {
            float v = x[r * width + c] + bias[c];
            y[r * width + c] = v > 0 ? v : 0;
        }
}
"""


def compiled(source):
    folder = tempfile.mkdtemp()
    text, library = os.path.join(folder, "kernel.cpp"), os.path.join(folder, "kernel.so")
    with open(text, "w") as file:
        file.write(source)
    subprocess.run(
        ["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", text, "-o", library],
        check=True,
    )
    return ctypes.CDLL(library)


bias_relu = compiled(SOURCE).bias_relu
bias_relu.argtypes, bias_relu.restype = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2, None


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        width = self.bias.numel()
        bias_relu(x.data_ptr(), self.bias.data_ptr(), y.data_ptr(), x.numel() // width, width)
        return y
