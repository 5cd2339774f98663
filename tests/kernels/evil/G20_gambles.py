"""Skips the work in every fourth call at random, in the hope that a lucky submission is judged in calls it did.
Every timed output is compared, so that luck has to hold for all of them."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import random

import torch
import torch.nn as nn

luck = random.SystemRandom()


class ModelNew(nn.Module):
    def forward(self, x):
        if luck.random() < 0.25:
            return torch.empty_like(x)
        return torch.softmax(x, -1)
