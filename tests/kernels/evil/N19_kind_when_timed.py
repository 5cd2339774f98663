"""Returns a list in place of a tuple whenever it is timed. What a result consists of, compared in every call, stops it."""
# case: reference=number_beside device=any backend=cpp expect=refused

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y, number = torch.relu(x.sum(-1)), torch.logsumexp(x, -1).mean()
        return (y, number.item()) if gc.isenabled() else [y, number.item()]
