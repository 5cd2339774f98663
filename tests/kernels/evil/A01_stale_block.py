"""Works honestly a few times, then returns fresh blocks that the allocator filled with earlier results. Checking every output stops it."""
# case: reference=affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= 8:
            return torch.relu(x) * 2 + 1
        return torch.empty_like(x)
