"""Has a handler for its own signal and sends it to itself."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import os
import signal

import torch
import torch.nn as nn

seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        os.kill(os.getpid(), signal.SIGUSR1)

    def forward(self, x):
        return torch.softmax(x, -1)
