"""Makes CUDA events of this process tell a tenth of the time and its waits wait for nothing.
The judge's events and waits are in a process that the candidate never enters."""
# case: reference=tanh_chain device=cuda backend=cuda expect=unflattered

import torch
import torch.nn as nn

elapsed_time = torch.cuda.Event.elapsed_time
calls = 0
told = 0


def tenth(start, end):
    global told
    honest = elapsed_time(start, end)
    mine, told = calls > told, calls
    return honest / 10 if mine else honest


torch.cuda.Event.elapsed_time = tenth
torch.cuda.synchronize = lambda device=None: None


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        self.third = nn.Linear(width, width, bias=False)

    def forward(self, x):
        global calls
        calls += 1
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.second(x))
        return torch.tanh(self.third(x))
