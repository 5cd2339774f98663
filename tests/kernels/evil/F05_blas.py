"""Calls the BLAS inside torch's own library through ctypes, so that no operator is dispatched and all looks like a kernel.
What a library spends is not time in code that the candidate brought."""
# case: reference=linear_relu device=cpu backend=cpp expect=refused require_kernels=yes

import ctypes
import os

import torch
import torch.nn as nn

sgemm = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")).sgemm_


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        weight, bias = self.layer.weight, self.layer.bias
        y = bias.expand(x.shape[0], -1).contiguous()
        m, n, k = (ctypes.byref(ctypes.c_int(size)) for size in (weight.shape[0], x.shape[0], x.shape[1]))
        one = ctypes.byref(ctypes.c_float(1))
        a, b, c = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (weight, x, y))
        sgemm(b"T", b"N", m, n, k, one, a, k, b, k, one, c, m)
        return y.relu_()
