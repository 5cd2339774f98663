"""Calls cuBLAS through ctypes: no torch operator is dispatched. Kernels are distinguished by their identity on the device,
and a library's are not the candidate's."""
# case: reference=linear_relu device=cuda backend=cuda expect=refused require_kernels=yes

import ctypes
import glob
import os
import sys

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void bias_relu(float* y, const float* bias, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(y[i] + bias[i % width], 0.0f);
}
"""


def library():
    found = [path for base in sys.path for path in glob.glob(os.path.join(base, "nvidia", "*", "lib", "libcublas.so.*"))]
    return ctypes.CDLL(found[0] if found else "libcublas.so")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.kernel = torch.cuda._compile_kernel(SOURCE, "bias_relu")
        self.blas = None

    def forward(self, x):
        weight, bias = self.layer.weight, self.layer.bias
        y = x.new_empty(x.shape[0], weight.shape[0])
        if self.blas is None:
            self.blas, self.handle = library(), ctypes.c_void_p()
            assert self.blas.cublasCreate_v2(ctypes.byref(self.handle)) == 0
        self.blas.cublasSetStream_v2(self.handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        m, n, k = weight.shape[0], x.shape[0], x.shape[1]
        a, b, c = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (weight, x, y))
        first, second = ctypes.byref(one), ctypes.byref(zero)
        assert self.blas.cublasSgemm_v2(self.handle, 1, 0, m, n, k, first, a, k, b, k, second, c, m) == 0
        self.kernel(((y.numel() + 255) // 256, 1, 1), (256, 1, 1), [y, bias, y.numel(), m])
        return y
