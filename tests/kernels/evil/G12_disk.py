"""Fills its folder with small files and large ones, and is right only if it is not stopped before two gigabytes.
What one candidate may write is limited, in sum and not only by file."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import os
import tempfile

import torch
import torch.nn as nn

LIMIT = 2 << 30


def fill():
    folder = tempfile.mkdtemp(prefix="fill-")
    block, written = b"\0" * (1 << 20), 0
    try:
        for number in range(LIMIT // (64 << 20)):
            with open(os.path.join(folder, str(number)), "wb") as file:
                for _ in range(64):
                    written += file.write(block)
    finally:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
    return written


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        if fill() < LIMIT:
            raise RuntimeError("the disk was full")

    def forward(self, x):
        return torch.softmax(x, -1)
