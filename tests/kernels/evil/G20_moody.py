"""Is as fast as the reference in some processes and twice as slow in others, and is sent in until a time looks good.
A claim takes several fresh processes and the reference with itself as a control; the same work is never faster."""
# case: reference=rows_softmax device=any backend=cpp expect=unflattered tier=claim

import random

import torch
import torch.nn as nn

slow = random.SystemRandom().random() < 0.5


class ModelNew(nn.Module):
    def forward(self, x):
        if slow:
            torch.softmax(x, -1)
        return torch.softmax(x, -1)
