"""Packs the weights for its kernel, again when they have been written or replaced, and leaves the parameters as they are."""
# case: reference=few_rows_linear device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
extern "C" void linear(const float* x, const float* packed, float* y, long rows, long in, long out) {
    #pragma omp parallel for
    for (long block = 0; block < out / 8; block++)
        for (long r = 0; r < rows; r++) {
            float sums[8] = {0};
            const float* w = packed + block * 8 * in;
            for (long i = 0; i < in; i++)
                for (long j = 0; j < 8; j++) sums[j] += x[r * in + i] * w[i * 8 + j];
            for (long j = 0; j < 8; j++) y[r * out + block * 8 + j] = sums[j];
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
        self.key, self.packed = None, None

    def forward(self, x):
        out, wide = self.layer.weight.shape
        key = (self.layer.weight.data_ptr(), self.layer.weight._version)
        if key != self.key:
            self.key, self.packed = key, self.layer.weight.detach().view(out // 8, 8, wide).transpose(1, 2).contiguous()
        y = x.new_empty(x.shape[0], out)
        linear(x.data_ptr(), self.packed.data_ptr(), y.data_ptr(), x.shape[0], wide, out)
        return y
