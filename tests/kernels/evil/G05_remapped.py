"""Makes the memory of its inputs writable with mprotect, or maps its own over it, then computes in place.
An output may not lie where inputs are lent, whatever the page tables of this process say."""
# case: reference=rows_softmax device=cpu backend=cpp expect=refused

import ctypes
import mmap

import torch
import torch.nn as nn

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
READ_WRITE, FIXED_PRIVATE = 3, 0x32  # MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS


class ModelNew(nn.Module):
    def forward(self, x):
        page = mmap.PAGESIZE
        start = x.data_ptr() // page * page
        size = -(-(x.data_ptr() + x.numel() * 4 - start) // page) * page
        if libc.mprotect(start, size, READ_WRITE):
            values = x.clone()
            libc.mmap(start, size, READ_WRITE, FIXED_PRIVATE, -1, 0)
            x.copy_(values)
        return torch.softmax(x, -1, out=x)
