"""As D02_thread from C++: a detached thread that Python does not know of fills the output after the return.
Lines of the output read the moment it says it is done, and compared with what is there later, stop it."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <thread>
static void rows(const float* x, float* y, long num, long n) {
    for (long r = 0; r < num; r++, x += n, y += n) {
        float top = x[0], sum = 0;
        for (long i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
        for (long i = 0; i < n; i++) sum += y[i] = std::exp(x[i] - top);
        for (long i = 0; i < n; i++) y[i] /= sum;
    }
}
extern "C" void later(const float* x, float* y, long num, long n, long threads) {
    for (long t = 0; t < threads; t++) {
        long from = num * t / threads, to = num * (t + 1) / threads;
        std::thread(rows, x + from * n, y + from * n, to - from, n).detach();
    }
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", source, "-o", library], check=True)
    function = ctypes.CDLL(library).later
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    return function


later = compiled()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        later(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], 2)
        return y
