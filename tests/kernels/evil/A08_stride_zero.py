"""Returns a view that repeats one column by a stride of zero where a written-out tensor is owed. Exact strides stop it."""
# case: reference=copied_mean device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True).expand(-1, x.shape[1])
