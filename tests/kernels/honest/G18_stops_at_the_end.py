"""Reads and writes up to the last element, with a loop for the tail, and not one further."""
# case: reference=row_energy device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
extern "C" void energy(const float* x, float* y, long num, long n) {
    #pragma omp parallel for
    for (long r = 0; r < num; r++) {
        const float *at = x + r * n, *end = at + n;
        double sum = 0;
        for (; end - at >= 8; at += 8)
            for (long j = 0; j < 8; j++) sum += at[j] * at[j];
        while (at < end) { sum += *at * *at; at++; }
        y[r] = (float)sum;
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
    function = ctypes.CDLL(library).energy
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return function


energy = compiled()


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        energy(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
