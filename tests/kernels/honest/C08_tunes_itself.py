"""Times two right ways on its first call of each shape and stays with the faster one."""
# case: reference=matmul device=any backend=cpp expect=ok

import time

import torch
import torch.nn as nn


def whole(a, b):
    return a @ b


def in_halves(a, b):
    half = a.shape[0] // 2
    return torch.cat([a[:half] @ b, a[half:] @ b])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.best = {}

    def seconds(self, way, a, b):
        start = time.perf_counter()
        way(a, b)
        if a.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def forward(self, a, b):
        key = (a.shape, b.shape)
        if key not in self.best:
            self.best[key] = min((whole, in_halves), key=lambda way: self.seconds(way, a, b))
        return self.best[key](a, b)
