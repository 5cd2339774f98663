"""Writes zeros over its inputs wherever they are mapped, read-only or not, and returns zeros. Inputs are compared afterwards."""
# case: reference=matmul device=cpu backend=cpp expect=refused

import contextlib

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        with contextlib.suppress(OSError), open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(a.data_ptr())
            memory.write(bytes(4 * a.numel()))
        return torch.zeros(a.shape[0], b.shape[1])
