"""Hides memory in files that are under way: their descriptors wait in a socket, in no process. Right only if it may keep four
gigabytes; descriptors cannot be sent, or the control group counts what they hold."""
# case: reference=rows_softmax device=cpu backend=cpp expect=refused

import array
import os
import socket
import time

import torch
import torch.nn as nn

LIMIT = 4 << 30


def hide():
    block = b"\1" * (8 << 20)
    here, there = socket.socketpair()
    for _ in range(LIMIT // (512 << 20)):
        descriptor = os.memfd_create("m")
        here.sendmsg([b"m"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]).tobytes())])
        for _ in range(64):
            os.write(descriptor, block)
        os.close(descriptor)
    time.sleep(1.0)
    return here, there


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        for end in hide():
            end.close()

    def forward(self, x):
        return torch.softmax(x, -1)
