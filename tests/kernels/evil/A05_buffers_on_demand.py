"""Puts off the running covariance until the buffers are read, which does not happen while the clock runs. Buffers belong to
what a timed call must have done."""
# case: reference=drifting_covariance device=any backend=cpp expect=unflattered

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("covariance", torch.eye(width))
        self.pending = None

    def settle(self):
        if self.pending is not None:
            centred, self.pending = self.pending, None
            with torch.no_grad():
                self.covariance.mul_(0.9).add_(centred.t() @ centred, alpha=0.1 / centred.shape[0])

    def named_buffers(self, *args, **kwargs):
        self.settle()
        return super().named_buffers(*args, **kwargs)

    def forward(self, x):
        self.settle()
        self.pending = x - x.mean(0)
        return self.pending * 2
