"""Profiles its own first call with sys.setprofile and takes the hook away again."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.events = None

    def forward(self, x):
        if self.events is not None:
            return torch.softmax(x, -1)
        self.events = []
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, argument: self.events.append(event))
        try:
            return torch.softmax(x, -1)
        finally:
            sys.setprofile(before)
