"""Sets an alarm for itself while it is built, as programs that time out do, and takes it back."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

import signal

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        before = signal.signal(signal.SIGALRM, lambda number, frame: None)
        signal.setitimer(signal.ITIMER_REAL, 30.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)

    def forward(self, x):
        return torch.softmax(x, -1)
