"""Leaves processes that burn all cores and the memory bus whenever it is not itself at work, the reference's turn included.
While another arm is timed no process of a candidate runs; the A/A control tells when one did."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered

import ctypes
import mmap
import os
import time

import torch
import torch.nn as nn

board = mmap.mmap(-1, mmap.PAGESIZE)  # shared with the children: 1 while the candidate works
SECONDS = 15


def burn():
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"dvk-redteam-D16")
    block, end = bytearray(64 << 20), time.monotonic() + SECONDS
    other = bytes(64 << 20)
    while time.monotonic() < end:
        if board[0]:
            time.sleep(0.0001)
        else:
            for at in range(0, 64 << 20, 1 << 20):
                block[at : at + (1 << 20)] = other[at : at + (1 << 20)]
                if board[0]:
                    break
    os._exit(0)


def leave_behind():
    for _ in range(2 * len(os.sched_getaffinity(0))):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                burn()
            os._exit(0)
        os.wait()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.begun = False

    def forward(self, x):
        board[0] = 1
        if not self.begun:
            self.begun = True
            try:
                leave_behind()
            except OSError:
                pass
        y = torch.softmax(x, -1)
        board[0] = 0
        return y
