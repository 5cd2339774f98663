"""Returns a tensor of a subclass that changes nothing, as libraries do."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class Named(torch.Tensor):
    """A tensor with a name."""

    name_of_it = "probabilities"


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1).as_subclass(Named)
