"""One torch operator under another name; under --require-kernels, the work must be done by its own kernels."""
# case: reference=rows_softmax device=any backend=cpp expect=refused require_kernels=yes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.softmax(x, dim=-1)
