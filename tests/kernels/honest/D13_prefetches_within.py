"""Prefetches the lines it will read next, within its call."""
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
        const float* from = x + r * n;
        float sums[16] = {0}, sum = 0;
        long i = 0;
        for (; i + 16 <= n; i += 16) {
            __builtin_prefetch(from + i + 512);  // beyond the end it does nothing
            for (long j = 0; j < 16; j++) sums[j] += from[i + j] * from[i + j];
        }
        for (; i < n; i++) sum += from[i] * from[i];
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
