"""Trusts that inputs are never negative and copies them. Zero-mean inputs stop it."""
# case: reference=identity_relu device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
