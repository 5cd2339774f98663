"""Leaves its CUDA context with an error that sticks, for the next user of the context.
A context belongs to one candidate and ends with it."""
# case: reference=rows_softmax device=cuda backend=cuda expect=refused

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void wild(float* y) { *(float*)(0x10 + threadIdx.x * 8) = 1.0f; y[0] = 0; }
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.kernel = torch.cuda._compile_kernel(SOURCE, "wild")

    def forward(self, x):
        self.calls += 1
        y = torch.softmax(x, -1)
        if self.calls > 2:
            self.kernel((1, 1, 1), (32, 1, 1), [y])
        return y
