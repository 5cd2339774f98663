"""Works on its own stream that waits for the caller's, and has the caller's wait for it."""
# case: reference=tanh_chain device=cuda backend=cuda expect=ok

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
        caller = torch.cuda.current_stream()
        self.stream.wait_stream(caller)
        with torch.cuda.stream(self.stream):
            h = torch.tanh(self.first(x))
            h = torch.tanh(self.second(h))
            y = torch.tanh(self.third(h))
        caller.wait_stream(self.stream)
        y.record_stream(caller)
        return y
