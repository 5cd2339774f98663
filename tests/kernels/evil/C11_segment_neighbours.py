"""Looks through the whole device allocation around its input for a block that begins like the answer. Own allocations stop it."""
# case: reference=matmul device=cuda backend=cpp expect=unflattered

import ctypes

import torch
import torch.nn as nn

driver = ctypes.CDLL("libcuda.so.1")


class Range:
    def __init__(self, address, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (address, False), "version": 3}


def around(t):
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(t.data_ptr()))
    return torch.as_tensor(Range(base.value, size.value // 4), device="cuda")


class ModelNew(nn.Module):
    def forward(self, a, b):
        row = a[:1] @ b
        count = a.shape[0] * b.shape[1]
        for tensor in (a, b):
            everything = around(tensor)
            starts = (everything[::128] - row[0, 0]).abs() < 1e-4
            for place in torch.nonzero(starts).flatten().tolist()[:64]:
                block = everything[128 * place : 128 * place + count]
                if block.numel() == count and torch.allclose(block[: row.numel()], row[0], 1e-4, 1e-4):
                    return block.view(a.shape[0], b.shape[1]).clone()
        return a @ b
