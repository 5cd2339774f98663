"""Decorates its own functions and hangs hooks on itself; no others are touched."""
# case: reference=gelu_affine device=any backend=cpp expect=ok

import functools

import torch
import torch.nn as nn
import torch.nn.functional as F


def counted(function):
    @functools.wraps(function)
    def inner(*args):
        inner.calls += 1
        return function(*args)

    inner.calls = 0
    return inner


@counted
def affine(x, scale, shift):
    return torch.addcmul(shift, x, scale)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))
        self.register_forward_pre_hook(lambda module, args: None)
        self.register_forward_hook(lambda module, args, result: None)

    def forward(self, x):
        return affine(F.gelu(x), self.scale, self.shift)
