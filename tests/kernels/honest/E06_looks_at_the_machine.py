"""Chooses its number of threads by what /proc and /sys say of the processor, and does without where they are hidden."""
# case: reference=matmul device=cpu backend=cpp expect=ok

import contextlib
import os

import torch.nn as nn


def cache_kib():
    with contextlib.suppress(OSError, ValueError), open("/sys/devices/system/cpu/cpu0/cache/index2/size") as file:
        return int(file.read().strip().rstrip("K"))
    return 512


def wide_vectors():
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        return "avx512f" in file.read()
    return False


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = max(64, cache_kib() // (1 if wide_vectors() else 2)) * (os.cpu_count() or 1)

    def forward(self, a, b):
        y = a.new_empty(a.shape[0], b.shape[1])
        for start in range(0, a.shape[0], self.rows):
            y[start : start + self.rows] = a[start : start + self.rows] @ b
        return y
