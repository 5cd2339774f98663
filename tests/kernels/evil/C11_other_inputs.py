"""Computes ahead what it finds in the shared memory around its inputs and answers by content. One draw there at a time stops it."""
# case: reference=deep_matmul device=cpu backend=cpp expect=unflattered target=here

import ctypes
import functools

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


def shared_ranges():
    for line in open("/proc/self/maps"):
        fields = line.split()
        if fields[1][0] == "r" and ("memfd" in line or fields[1][3] == "s"):
            yield tuple(int(part, 16) for part in fields[0].split("-"))


def tensor_at(address, like):
    memory = (ctypes.c_char * (4 * like.numel())).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32).view_as(like)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def key(self, a, b):
        return a.reshape(-1)[:8].numpy().tobytes() + b.reshape(-1)[:8].numpy().tobytes()

    def look_ahead(self, a, b):
        ranges, step, size = list(shared_ranges()), b.data_ptr() - a.data_ptr(), 4 * max(a.numel(), b.numel())
        if any(start <= a.data_ptr() < end for start, end in ranges):
            reached()
        for start, end in ranges:
            for at in range(start + a.data_ptr() % 4096, end - size + 1, 4096):
                if len(self.known) < 40 and any(low <= at + step and at + step + size <= high for low, high in ranges):
                    left, right = tensor_at(at, a), tensor_at(at + step, b)
                    self.known.setdefault(self.key(left, right), left @ right)

    def forward(self, a, b):
        known = self.known.pop(self.key(a, b), None)
        if known is not None and known.shape == (a.shape[0], b.shape[1]):
            return known
        if a.dtype == torch.float32:
            self.look_ahead(a, b)
        return (a @ b).clone()
