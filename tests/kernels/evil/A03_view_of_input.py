"""Returns another view of its input where a new tensor is owed. Signed inputs and the aliasing check stop it."""
# case: reference=identity_relu device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.view(-1).as_strided(x.shape, x.stride())
