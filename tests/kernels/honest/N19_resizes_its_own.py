"""Keeps a workspace in its memory file, which it makes longer and shorter as shapes come and go."""
# case: reference=row_energy device=cpu backend=cpp expect=ok

import mmap
import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.descriptor = os.memfd_create("workspace")

    def forward(self, x):
        size = x.numel() * 4
        os.ftruncate(self.descriptor, size)
        pages = mmap.mmap(self.descriptor, size)
        squares = torch.frombuffer(pages, dtype=torch.float32).view(x.shape)
        return torch.mul(x, x, out=squares).sum(-1)
