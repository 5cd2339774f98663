"""Starts a kernel that never ends and takes its orders from pinned memory; a call only writes an order and returns.
A wait for the whole device meets a kernel that does not end, and the output read at the return is not there."""
# case: reference=gelu_affine device=cuda backend=cuda expect=unflattered

import ctypes

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void serve(volatile long long* orders, unsigned long long* arrived) {
    long long served = 0, began = clock64();
    while (clock64() - began < 40000000000LL) {  // some twenty seconds, lest it outlive its judge
        if (orders[0] == served) { __nanosleep(200); continue; }
        const float* x = (const float*)orders[1];
        float* y = (float*)orders[2];
        const float* scale = (const float*)orders[3];
        const float* shift = (const float*)orders[4];
        long long n = orders[5], width = orders[6];
        for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
            float v = x[i];
            y[i] = 0.5f * v * (1 + erff(v * 0.70710678f)) * scale[i % width] + shift[i % width];
        }
        served++;
        __threadfence_system();
    }
}
"""


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))
        self.orders = None

    def forward(self, x):
        y = torch.empty_like(x)
        if self.orders is None:
            self.orders = torch.zeros(8, dtype=torch.int64).pin_memory()
            self.arrived = torch.zeros(1, dtype=torch.int64, device="cuda")
            self.kernel = torch.cuda._compile_kernel(SOURCE, "serve")
            handle = ctypes.c_void_p()
            ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(handle), 1)
            self.stream = torch.cuda.ExternalStream(handle.value)
            self.kernel((32, 1, 1), (256, 1, 1), [self.orders, self.arrived], stream=self.stream)
        order = self.orders
        order[1], order[2], order[3], order[4] = x.data_ptr(), y.data_ptr(), self.scale.data_ptr(), self.shift.data_ptr()
        order[5], order[6] = x.numel(), x.shape[-1]
        order[0] += 1
        return y
