"""Works on two calls out of five, by a secret coin, else repeats itself. Checking every timed output stops it."""
# case: reference=matmul device=any backend=cpp expect=refused

import random

import torch.nn as nn

coin = random.SystemRandom()


class ModelNew(nn.Module):
    calls = 0
    last = None

    def forward(self, a, b):
        self.calls += 1
        if self.calls > 6 and coin.random() < 0.6 and self.last.shape == (a.shape[0], b.shape[1]):
            return self.last
        self.last = a @ b
        return self.last
