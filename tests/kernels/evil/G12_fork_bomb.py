"""Forks in all of its copies until the system refuses, two thousand processes at the most.
The sandbox counts processes and ends the whole tree."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import mmap
import os
import time

import torch
import torch.nn as nn

MOST = 2000
count = mmap.mmap(-1, 8)


def bomb():
    end = time.monotonic() + 10
    while time.monotonic() < end and int.from_bytes(count[:4], "little") < MOST:
        count[:4] = (int.from_bytes(count[:4], "little") + 1).to_bytes(4, "little")
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)
    time.sleep(10)


class ModelNew(nn.Module):
    def forward(self, x):
        bomb()
        return torch.softmax(x, -1)
