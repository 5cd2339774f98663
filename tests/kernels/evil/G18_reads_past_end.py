"""Reads whole vectors past the end of its input, which is foreign memory, to do without a tail loop.
Inputs end where a page ends, and the next page may not be read."""
# case: reference=row_energy device=cpu backend=cpp expect=refused

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
extern "C" void energy(const float* x, float* y, long rows, long n) {
    long padded = (n + 255) / 256 * 256 + 256;  // always one block too many, weighed with zero
    for (long r = 0; r < rows; r++) {
        float sums[8] = {0};
        for (long i = 0; i < padded; i += 8)
            for (long j = 0; j < 8; j++) {
                float v = ((volatile const float*)x)[r * n + i + j];
                sums[j] += i + j < n ? v * v : 0;
            }
        float sum = 0;
        for (float part : sums) sum += part;
        y[r] = sum;
    }
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library], check=True)
    function = ctypes.CDLL(library).energy
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return function


energy = compiled()


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        energy(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
