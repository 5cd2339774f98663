"""Few long rows are split among threads, many rows are shared out; both branches are its own and both are met."""
# case: reference=row_energy device=cpu backend=cpp expect=ok require_kernels=yes

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
static float sum_of(const float* x, long n) {
    float sums[16] = {0}, sum = 0;
    long i = 0;
    for (; i + 16 <= n; i += 16)
        for (long j = 0; j < 16; j++) sums[j] += x[i + j] * x[i + j];
    for (; i < n; i++) sum += x[i] * x[i];
    for (float part : sums) sum += part;
    return sum;
}
extern "C" void energy(const float* x, float* y, long num, long n) {
    if (num >= 16) {
        #pragma omp parallel for
        for (long r = 0; r < num; r++) y[r] = sum_of(x + r * n, n);
        return;
    }
    for (long r = 0; r < num; r++) {
        float sum = 0;
        #pragma omp parallel for reduction(+ : sum)
        for (long part = 0; part < 8; part++) sum += sum_of(x + r * n + n * part / 8, n * (part + 1) / 8 - n * part / 8);
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
