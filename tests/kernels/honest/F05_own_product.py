"""Its own matrix product for few rows: each thread takes rows of the weight."""
# case: reference=few_rows_linear device=cpu backend=cpp expect=ok require_kernels=yes

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
extern "C" void linear(const float* x, const float* w, float* y, long rows, long in, long out) {
    #pragma omp parallel for
    for (long o = 0; o < out; o++)
        for (long r = 0; r < rows; r++) {
            float sums[16] = {0}, sum = 0;
            long i = 0;
            for (; i + 16 <= in; i += 16)
                for (long j = 0; j < 16; j++) sums[j] += x[r * in + i + j] * w[o * in + i + j];
            for (; i < in; i++) sum += x[r * in + i] * w[o * in + i];
            for (float part : sums) sum += part;
            y[r * out + o] = sum;
        }
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, source, "-o", library], check=True)
    function = ctypes.CDLL(library).linear
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    return function


linear = compiled()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)

    def forward(self, x):
        weight = self.layer.weight
        y = x.new_empty(x.shape[0], weight.shape[0])
        linear(x.data_ptr(), weight.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], weight.shape[0])
        return y
