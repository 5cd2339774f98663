"""Remembers results by the addresses of the inputs. New values at an old address stop it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, a, b):
        key = (a.data_ptr(), b.data_ptr(), a.shape, b.shape)
        if key not in self.known:
            self.known[key] = a @ b
        return self.known[key]
