"""Sends words, and no descriptors, over its pair of sockets."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

import socket

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        here, there = socket.socketpair()
        here.sendall(b"hello")
        assert there.recv(5) == b"hello"
        here.close()
        there.close()

    def forward(self, x):
        return torch.softmax(x, -1)
