"""Carries a small table of numbers as text, for a kernel that it compiles from source."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok require_kernels=yes

import base64
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>

static const float* table;
static inline float power(float v) {  // e^v by a table of 2^(i/64) and a cubic
    float scaled = v * 92.332482616893656f;
    if (scaled < -8000) return 0;
    float whole = std::floor(scaled + 0.5f), rest = (float)(v - whole * 0.010830424696249145);
    int k = (int)whole, i = k & 63;
    union { int bits; float value; } two = {((k - i) / 64 + 127) << 23};
    return two.value * table[i] * (1 + rest * (1 + rest * (0.5f + rest * 0.16666667f)));
}
extern "C" void rows(const float* x, float* y, long num, long n, const float* given) {
    table = given;
    #pragma omp parallel for
    for (long r = 0; r < num; r++) {
        const float* from = x + r * n;
        float *to = y + r * n, top = from[0], sum = 0;
        for (long i = 1; i < n; i++) top = from[i] > top ? from[i] : top;
        for (long i = 0; i < n; i++) sum += to[i] = power(from[i] - top);
        for (long i = 0; i < n; i++) to[i] /= sum;
    }
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, source, "-o", library], check=True)
    function = ctypes.CDLL(library).rows
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_char_p]
    return function


rows = compiled()


TABLE = base64.b64decode(
    "AACAP9JkgT+HzYI/KTqEP8OqhT9iH4c/D5iIP9UUij/ClYs/3xqNPzqkjj/cMZA/08ORPytakz/w9JQ/LZSWP/A3mD9G4Jk/Oo2b"
    "P9o+nT8y9Z4/UbCgP0Nwoj8WNaQ/1/6lP5TNpz9boak/OnqrPz9YrT95O68/9iOxP8QRsz/zBLU/kv22P6/7uD9b/7o/pAi9P5oX"
    "vz9NLME/zUbDPypnxT91jcc/vrnJPxXsyz+MJM4/NGPQPx6o0j9b89Q//UTXPxad2T+4+9s/9WDeP9/M4D+JP+M/B7nlP2o56D/H"
    "wOo/ME/tP7rk7z93gfI/fSX1P9/Q9z+zg/o/DD79Pw=="
)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], TABLE)
        return y
