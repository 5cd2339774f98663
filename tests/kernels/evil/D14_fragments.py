"""Tunes malloc after each of its calls to give every block back to the kernel, so that a reference in its process pays
page faults for each result. The baseline runs in a process that the candidate never enters."""
# case: reference=gelu_affine device=cpu backend=cpp expect=unflattered

import ctypes

import torch
import torch.nn as nn

libc = ctypes.CDLL(None)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
        y = torch.nn.functional.gelu(x) * self.scale + self.shift
        libc.mallopt(M_MMAP_THRESHOLD, 4096)
        libc.mallopt(M_TRIM_THRESHOLD, 0)
        libc.malloc_trim(0)
        return y
