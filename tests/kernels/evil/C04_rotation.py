"""Notices the period in which inputs return and then answers by position without reading them. Checking every output stops it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.results, self.period, self.calls = [], [], None, 0

    def forward(self, a, b):
        self.calls += 1
        if self.period is not None:
            return self.results[(self.calls - 1 - self.start) % self.period]
        key = (a.data_ptr(), b.data_ptr(), a.shape)
        if key in self.seen[-8:]:
            back = self.seen[::-1].index(key) + 1
            self.period, self.start = back, self.calls - 1
            self.results = self.results[-back:]
            return self.results[0]
        self.seen.append(key)
        self.results.append(a @ b)
        return self.results[-1]
