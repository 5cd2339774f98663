"""Returns a transposed view where the reference's result is contiguous: callers that view it would fail."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (b.t() @ a.t()).t()
