"""Blocks and ignores every signal it may, cancels alarms, and never returns from its second call.
The limit is held by another process, with the signal that cannot be ignored."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import signal
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 1:
            signal.alarm(0)
            for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
            while True:
                time.sleep(0.01)
        return torch.softmax(x, -1)
