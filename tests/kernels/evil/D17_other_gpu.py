"""Computes on a second GPU and copies the result over when it is ready, while only the first one is watched.
A candidate sees one GPU; where it sees more, the output is read when the call returns."""
# case: reference=tanh_chain device=cuda backend=cuda expect=unflattered twin=D02_joined_threads

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        self.third = nn.Linear(width, width, bias=False)
        self.other = None

    def chain(self, x, weights):
        for weight in weights:
            x = torch.tanh(x @ weight.t())
        return x

    def forward(self, x):
        weights = [self.first.weight, self.second.weight, self.third.weight]
        if torch.cuda.device_count() < 2:
            return self.chain(x, weights)
        if self.other is None:
            self.other = [weight.detach().to("cuda:1") for weight in weights]
        y = torch.empty_like(x)
        with torch.cuda.device(1):
            y.copy_(self.chain(x.to("cuda:1", non_blocking=True), self.other), non_blocking=True)
        return y
