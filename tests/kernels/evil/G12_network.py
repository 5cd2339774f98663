"""Would fetch its answer from elsewhere: it is right only if this process has a way out to a network.
The sandbox has no network; nothing is sent, a route to an address for documentation is enough."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import socket

import torch
import torch.nn as nn


def reachable():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.connect(("192.0.2.1", 9))
        return end.getsockname()[0]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        reachable()

    def forward(self, x):
        return torch.softmax(x, -1)
