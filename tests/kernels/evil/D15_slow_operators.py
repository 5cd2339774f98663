"""Replaces the operators that the reference calls by ones that sleep, and keeps the quick ones for itself.
The reference looks its operators up in a process that the candidate never enters."""
# case: reference=rows_softmax device=any backend=cpp expect=unflattered

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

quick = torch.softmax


def slow(function):
    def slowly(*args, **kwargs):
        time.sleep(0.01)
        return function(*args, **kwargs)

    return slowly


for owner in (torch, torch.Tensor, F, torch._C._nn):
    for name in ("softmax", "exp", "linear", "gelu", "relu", "sum", "matmul"):
        if hasattr(owner, name):
            try:
                setattr(owner, name, slow(getattr(owner, name)))
            except (AttributeError, TypeError):
                pass


class ModelNew(nn.Module):
    def forward(self, x):
        return quick(x, -1)
