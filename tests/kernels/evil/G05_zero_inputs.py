"""Overwrites its input with zeros and returns zeros, so that a reference that runs later on the same input agrees.
Inputs are lent as copies, may be read-only, and are compared with what was lent."""
# case: reference=row_energy device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        x.zero_()
        return x.new_zeros(x.shape[0])
