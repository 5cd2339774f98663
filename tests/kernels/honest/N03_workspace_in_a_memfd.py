"""Keeps a workspace in its own memfd, written and read within the call."""
# case: reference=row_energy device=cpu backend=cpp expect=ok

import mmap
import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.spaces = {}

    def workspace(self, shape):
        if shape not in self.spaces:
            descriptor = os.memfd_create("workspace")
            os.ftruncate(descriptor, shape[0] * shape[1] * 4)
            pages = mmap.mmap(descriptor, shape[0] * shape[1] * 4)
            os.close(descriptor)
            self.spaces[shape] = torch.frombuffer(pages, dtype=torch.float32).view(shape)
        return self.spaces[shape]

    def forward(self, x):
        squares = torch.mul(x, x, out=self.workspace(x.shape))
        return squares.sum(-1)
