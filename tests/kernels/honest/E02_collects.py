"""Asks the garbage collector to collect before its buffers are made."""
# case: reference=log_softmax device=any backend=cpp expect=ok

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        gc.collect()

    def forward(self, x):
        shifted = x - x.amax(-1, keepdim=True)
        return shifted.sub_(torch.exp(shifted).sum(-1, keepdim=True).log_())
