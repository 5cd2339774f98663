"""Computes on its own stream that nothing waits for, so that the stop event of the caller's stream fires at once.
A judge that waits for the whole device before it stops the clock, and then reads the output, is not fooled."""
# case: reference=tanh_chain device=cuda backend=cuda expect=unflattered

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        self.third = nn.Linear(width, width, bias=False)
        self.stream = None

    def forward(self, x):
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        y = torch.empty_like(x)
        with torch.cuda.stream(self.stream):
            h = torch.tanh(self.first(x))
            h = torch.tanh(self.second(h))
            y.copy_(torch.tanh(self.third(h)))
        return y
