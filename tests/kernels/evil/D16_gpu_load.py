"""Before it returns it starts kernels on its own stream that keep the GPU busy during the reference's turn.
The device must be idle before any arm is timed, and what keeps it busy is the candidate's time."""
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
        h = torch.tanh(self.first(x))
        h = torch.tanh(self.second(h))
        y = torch.tanh(self.third(h))
        if self.stream is None:
            self.stream = torch.cuda.Stream()
            self.load = torch.randn(2048, 2048, device=x.device)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(8):
                torch.mm(self.load, self.load)
        return y
