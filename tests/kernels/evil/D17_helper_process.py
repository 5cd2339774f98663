"""Has a forked helper do the work on shared memory and sleeps meanwhile: none of it is this process's own CPU time.
The time that counts passes on a clock on the wall."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered twin=D02_joined_threads

import mmap
import os
import select

import torch
import torch.nn as nn


class Helper:
    def __init__(self, shape):
        count = shape[0] * shape[1]
        self.inside, self.outside = (mmap.mmap(-1, count * 4) for _ in range(2))
        self.x = torch.frombuffer(self.inside, dtype=torch.float32).view(shape)
        self.y = torch.frombuffer(self.outside, dtype=torch.float32).view(shape)
        ours, theirs = os.pipe(), os.pipe()
        if os.fork() == 0:
            torch.set_num_threads(1)  # a fork does not have torch's threads
            rows = shape[0]
            while os.read(ours[0], 1):
                for row in range(0, rows, 8):
                    part = self.x[row : row + 8]
                    e = torch.exp(part - part.amax(-1, keepdim=True))
                    self.y[row : row + 8] = e / e.sum(-1, keepdim=True)
                os.write(theirs[1], b"!")
            os._exit(0)
        self.order, self.answer = ours[1], theirs[0]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.helpers = {}

    def forward(self, x):
        if x.shape not in self.helpers:
            self.helpers[x.shape] = Helper(x.shape)
        helper = self.helpers[x.shape]
        helper.x.copy_(x)
        os.write(helper.order, b"!")
        select.select([helper.answer], [], [], 5)
        os.read(helper.answer, 1)
        return helper.y.clone()
