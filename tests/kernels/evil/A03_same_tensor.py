"""Returns its input where ReLU natively changes nothing. Signed inputs and the aliasing check stop it."""
# case: reference=identity_relu device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x
