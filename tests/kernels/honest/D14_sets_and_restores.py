"""Sets torch's threads for its own call and puts them back afterwards."""
# case: reference=gelu_affine device=cpu backend=cpp expect=ok

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))
        self.threads = len(os.sched_getaffinity(0))

    def forward(self, x):
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            return torch.addcmul(self.shift, torch.nn.functional.gelu(x), self.scale)
        finally:
            torch.set_num_threads(before)
