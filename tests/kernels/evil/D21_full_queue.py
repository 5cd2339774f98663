"""Fills the hardware queues with tiny kernels on many streams, so that stop events are recorded out of step with the work,
which is in the last stream. A wait for the whole device before the judge's own clock stops is not recorded at all."""
# case: reference=tanh_chain device=cuda backend=cuda expect=unflattered

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        self.third = nn.Linear(width, width, bias=False)
        self.streams = None

    def forward(self, x):
        if self.streams is None:
            self.streams = [torch.cuda.Stream() for _ in range(32)]
            self.specks = torch.zeros(32, 1, device=x.device)
        y = torch.empty_like(x)
        for _ in range(4):
            for stream, speck in zip(self.streams, self.specks):
                with torch.cuda.stream(stream):
                    speck.add_(1)
        with torch.cuda.stream(self.streams[-1]):
            h = torch.tanh(self.first(x))
            h = torch.tanh(self.second(h))
            y.copy_(torch.tanh(self.third(h)))
        return y
