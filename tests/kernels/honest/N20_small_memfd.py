"""Writes a table to a file in memory when it is built, maps it and closes the descriptor."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

import mmap
import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        descriptor = os.memfd_create("table")
        os.write(descriptor, torch.ones(1 << 20).numpy().tobytes())
        self.pages = mmap.mmap(descriptor, 4 << 20)
        os.close(descriptor)
        self.ones = torch.frombuffer(self.pages, dtype=torch.float32)

    def forward(self, x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / (e @ self.ones[: x.shape[-1]]).unsqueeze(-1)
