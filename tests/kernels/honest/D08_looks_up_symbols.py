"""Finds a function of the C library with dlsym and reads the clock from C++, changing neither."""
# case: reference=row_energy device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
#include <dlfcn.h>
#include <time.h>
typedef float (*fused)(float, float, float);
static long spent;
extern "C" void energy(const float* x, float* y, long num, long n) {
    timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    fused fma = (fused)dlsym(RTLD_DEFAULT, "fmaf");
    #pragma omp parallel for
    for (long r = 0; r < num; r++) {
        float sums[16] = {0}, rest = 0, sum = 0;
        for (long i = 0; i + 16 <= n; i += 16)
            for (long j = 0; j < 16; j++) sums[j] += x[r * n + i + j] * x[r * n + i + j];
        for (long i = n / 16 * 16; i < n; i++) rest = fma ? fma(x[r * n + i], x[r * n + i], rest) : rest + x[r * n + i] * x[r * n + i];
        for (float part : sums) sum += part;
        y[r] = sum + rest;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    spent += (to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec;
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
