"""Returns a plain tensor over an address that was unmapped again, or whose pages may not be read.
A failed read of the claimed memory is the candidate's fault and no crash of the judge."""
# case: reference=rows_softmax device=cpu backend=cpp expect=refused

import ctypes

import torch
import torch.nn as nn

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        size = x.numel() * 4 + 4096
        address = libc.mmap(None, size, 0 if self.calls % 2 else 3, 0x22, -1, 0)
        y = torch.frombuffer((ctypes.c_char * (x.numel() * 4)).from_address(address), dtype=torch.float32).view(x.shape)
        if self.calls % 2 == 0:
            torch.softmax(x, -1, out=y)
            libc.munmap(address + size // 8192 * 4096, size - size // 8192 * 4096)
        return y
