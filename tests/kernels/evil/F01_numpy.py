"""Lets another library than torch do the work, on the same memory. Only its own kernels earn coverage,
whichever library it is."""
# case: reference=row_energy device=cpu backend=cpp expect=refused require_kernels=yes

import numpy as np
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.from_numpy(np.einsum("ij,ij->i", x.numpy(), x.numpy()))
