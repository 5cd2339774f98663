"""Overwrites every tensor of the output's shape that is alive in its process with zeros, expected answers among them.
Expected answers are in another process, and what the candidate was lent is compared with what was lent."""
# case: reference=rows_softmax device=any backend=cpp expect=refused target=elsewhere

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.no_grad():
            for one in gc.get_objects():
                if isinstance(one, torch.Tensor) and one.shape[-1:] == x.shape[-1:] and one.is_floating_point():
                    if one.data_ptr() != x.data_ptr():
                        one.zero_()
        return torch.zeros_like(x)
