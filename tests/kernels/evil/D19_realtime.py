"""Takes a real-time priority for itself and leaves children at normal priority that take all cores: they slow every arm
but its own. Priorities are refused in the sandbox, and no process of a candidate runs during another arm's turn."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered twin=D14_sets_and_restores

import os
import time

import torch
import torch.nn as nn


def burn():
    end = time.monotonic() + 15
    while time.monotonic() < end:
        pass
    os._exit(0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.begun = False

    def rise(self):
        try:
            for _ in range(2 * len(os.sched_getaffinity(0))):
                if os.fork() == 0:
                    burn()
            for thread in os.listdir("/proc/self/task"):
                os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(10))
        except OSError:
            pass

    def forward(self, x):
        y = torch.softmax(x, -1)
        if not self.begun:
            self.begun = True
            self.rise()
        return y
