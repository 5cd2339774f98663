"""Moves its work behind the call: it returns memory and fills it when a signal from its own timer interrupts whatever its
process does next. The output is read at the return and must not change afterwards."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered

import signal

import torch
import torch.nn as nn

due = []


def settle(*_):
    while due:
        x, y = due.pop()
        torch.softmax(x, -1, out=y)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.set = False

    def forward(self, x):
        if not self.set:
            self.set = True
            signal.signal(signal.SIGALRM, settle)
        y = torch.empty_like(x)
        due.append((x, y))
        signal.setitimer(signal.ITIMER_REAL, 0.00002)
        return y
