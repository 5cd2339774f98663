"""Remembers results by tensor identity and version counter, which raw copies into the memory leave alone. Such copies stop it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    last = None

    def forward(self, a, b):
        if self.last is not None:
            left, right, versions, result = self.last
            if left is a and right is b and versions == (a._version, b._version):
                return result
        result = a @ b
        self.last = (a, b, (a._version, b._version), result)
        return result
