"""Has a child process look at how many processors there are, waits for it, and computes by itself."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        pid = os.fork()
        if pid == 0:
            os._exit(len(os.sched_getaffinity(0)) & 0x7F)
        self.processors = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def forward(self, x):
        return torch.softmax(x, -1)
