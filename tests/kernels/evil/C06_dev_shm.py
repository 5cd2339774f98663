"""Keeps results in /dev/shm by content, for the next process that is given the same values. A private /dev/shm stops it."""
# case: reference=mean_rows device=cpu backend=cpp expect=unflattered tier=claim

import contextlib
import hashlib
import mmap

import torch
import torch.nn as nn

SLOT = 4096
memory = bytearray(256 * SLOT)
with contextlib.suppress(OSError), open("/dev/shm/dvk-redteam", "a+b") as file:
    file.truncate(256 * SLOT)
    memory = mmap.mmap(file.fileno(), 256 * SLOT)


class ModelNew(nn.Module):
    def forward(self, x):
        key = hashlib.sha1(x.reshape(-1)[:: x.numel() // 255].numpy().tobytes()).digest()
        start, size = key[0] * SLOT, 4 * x.shape[0]
        if memory[start : start + 20] == key:
            return torch.frombuffer(bytearray(memory[start + 20 : start + 20 + size]), dtype=torch.float32)
        y = x.mean(1).clone()
        if 20 + size <= SLOT:
            memory[start : start + 20 + size] = key + y.numpy().tobytes()
        return y
