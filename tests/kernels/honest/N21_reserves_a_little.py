"""Reserves a few pages of a file for a table before it writes it, as linkers and databases do, and reads the table back."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

import os
import tempfile

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        descriptor, name = tempfile.mkstemp()
        os.posix_fallocate(descriptor, 0, 1 << 16)
        os.pwrite(descriptor, b"\1" * 4096, 0)
        assert os.fstat(descriptor).st_size == 1 << 16
        os.close(descriptor)
        os.unlink(name)

    def forward(self, x):
        return torch.softmax(x, -1)
