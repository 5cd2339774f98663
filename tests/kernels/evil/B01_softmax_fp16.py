"""Computes a softmax on values rounded to 16-bit floats and returns float32. A tolerance below that rounding stops it."""
# case: reference=attention_weights device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


def narrow(t):
    return t.half().float()


class ModelNew(nn.Module):
    def forward(self, x):
        x = narrow(x)
        e = narrow(torch.exp(narrow(x - x.amax(-1, keepdim=True))))
        return e / e.sum(-1, keepdim=True)
