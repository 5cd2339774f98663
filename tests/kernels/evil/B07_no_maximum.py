"""A softmax that does not subtract the maximum, and overflows from 89 on. Large inputs stop it."""
# case: reference=attention_weights device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x)
        return e.div_(e.sum(-1, keepdim=True))
