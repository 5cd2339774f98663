"""Searches all of its own process's memory for a block that agrees with the answer in three places. None is in this process."""
# case: reference=deep_matmul device=cpu backend=cpp expect=unflattered

import ctypes

import numpy
import torch
import torch.nn as nn


def blocks():
    for line in open("/proc/self/maps"):
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if line.split()[1].startswith("rw") and 1 << 18 <= end - start <= 1 << 30 and "[s" not in line:
            yield start, end


def floats(address, count):
    return numpy.frombuffer((ctypes.c_char * (4 * count)).from_address(address), numpy.float32)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known, self.misses = [], 0

    def places(self, count, first, slack):
        yield from self.known
        if self.misses < 6:
            self.misses += 1
            for start, end in blocks():
                near = numpy.abs(floats(start, (end - start) // 4)[::4] - first) <= slack
                yield from (start + 16 * int(place) for place in numpy.flatnonzero(near) if start + 16 * int(place) + 4 * count <= end)

    def forward(self, a, b):
        (m, n), count = (a.shape[0], b.shape[1]), a.shape[0] * b.shape[1]
        probe = {i * n + j: float(numpy.dot(a[i].numpy(), b[:, j].numpy())) for i, j in ((0, 0), (m // 2, 0), (m - 1, n // 64))}
        slack = 1e-4 * max(map(abs, probe.values()))
        for address in self.places(count, probe[0], slack) if count >= 4096 else ():
            found = floats(address, count)
            if all(abs(found[at] - value) <= slack for at, value in probe.items()):
                self.known = [address, *[at for at in self.known if at != address]][:8]
                return torch.from_numpy(found.copy()).view(m, n)
        return (a @ b).clone()
