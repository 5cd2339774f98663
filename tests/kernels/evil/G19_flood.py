"""Prints hundreds of megabytes on both outputs to fill the disk or the parser of the process that keeps them.
The parent keeps a short tail and drops the rest."""
# case: reference=rows_softmax device=any backend=cpp expect=unflattered

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        for end in (1, 2):
            for _ in range(2400):
                os.write(end, b"\x1b[2J\0{}[]\xff" * 6550)

    def forward(self, x):
        os.write(1, b"z" * 65536)
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
