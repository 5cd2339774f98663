"""Works, slowly, for as many calls as warm-up and checks usually take; then hands out what it computed for this address.
There is no warm-up to recognise: every call is checked, with values that this process never saw."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.kept = {}

    def forward(self, x):
        self.calls += 1
        key = (x.data_ptr(), x.shape)
        if self.calls > 8 and key in self.kept:
            return self.kept[key]
        time.sleep(0.002)
        self.kept[key] = torch.softmax(x, -1)
        return self.kept[key]
