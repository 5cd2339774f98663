"""ReLU that looks at the sign although natively there is none to find."""
# case: reference=identity_relu device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void relu(const float* x, float* y, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
relu = ctypes.CDLL(os.path.join(folder, "k.so")).relu
relu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu(x.data_ptr(), y.data_ptr(), x.numel())
        return y
