"""The matrix product hides in the operator `@` and only the cheap epilogue is its own kernel.
Most of the time is spent in the library, and the share of the time is what counts."""
# case: reference=linear_relu device=cpu backend=cpp expect=refused require_kernels=yes

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
extern "C" void bias_relu(float* y, const float* bias, long rows, long width) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < width; i++) {
            float v = y[r * width + i] + bias[i];
            y[r * width + i] = v > 0 ? v : 0;
        }
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", source, "-o", library], check=True)
    function = ctypes.CDLL(library).bias_relu
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return function


bias_relu = compiled()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        y = x @ self.layer.weight.t()
        bias_relu(y.data_ptr(), self.layer.bias.data_ptr(), y.shape[0], y.shape[1])
        return y
