"""Takes memory, in this process and in children, until it is stopped.
The sandbox counts the memory of the whole tree and ends it."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        hoard = []
        for number in range(4000):
            hoard.append(bytearray(b"x" * (32 << 20)))
            if number % 8 == 3 and os.fork() == 0:
                continue
        return x
