"""Removes its folder at exit and gives back what it holds when it is freed."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import atexit
import shutil
import tempfile

import torch
import torch.nn as nn

folder = tempfile.mkdtemp()
atexit.register(shutil.rmtree, folder, ignore_errors=True)


class Held:
    def __init__(self):
        self.blocks = [torch.empty(1024) for _ in range(4)]

    def __del__(self):
        self.blocks.clear()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = Held()

    def forward(self, x):
        return torch.softmax(x, -1)
