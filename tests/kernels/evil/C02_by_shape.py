"""Remembers one result a shape. New values in an old shape stop it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, a, b):
        key = (*a.shape, *b.shape)
        if key not in self.known:
            self.known[key] = a @ b
        return self.known[key].clone()
