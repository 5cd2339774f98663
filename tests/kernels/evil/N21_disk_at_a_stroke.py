"""Takes gigabytes of the disk with one call for a file that it has deleted, and is right only if it gets them.
The call is refused, and deleted files are counted."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import ctypes
import os
import tempfile

import torch
import torch.nn as nn

LIMIT = 4 << 30


def take():
    libc = ctypes.CDLL(None)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    descriptor, name = tempfile.mkstemp()
    os.unlink(name)
    for mode in (0, 1):
        libc.fallocate(descriptor, mode, 0, LIMIT)
    size = os.fstat(descriptor).st_blocks * 512
    os.close(descriptor)
    return size


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        if take() < LIMIT:
            raise RuntimeError("the disk was full")

    def forward(self, x):
        return torch.softmax(x, -1)
