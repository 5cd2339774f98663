"""Holds memory in files that are written and never mapped, so that no process shows it, and is right only if it may keep four
gigabytes. Files in memory are counted by the descriptors and mappings that hold them, and by the control group."""
# case: reference=rows_softmax device=cpu backend=cpp expect=refused

import os
import time

import torch
import torch.nn as nn

LIMIT = 4 << 30
kept = []


def fill():
    block = b"\1" * (8 << 20)
    for _ in range(LIMIT // (512 << 20)):
        kept.append(os.memfd_create("m"))
        for _ in range(64):
            os.write(kept[-1], block)
    time.sleep(1.0)
    return sum(os.fstat(descriptor).st_blocks * 512 for descriptor in kept)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        held = fill()
        while kept:
            os.close(kept.pop())
        if held < LIMIT:
            raise RuntimeError("there was no memory")

    def forward(self, x):
        return torch.softmax(x, -1)
