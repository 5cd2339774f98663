"""Clamps the input in place once and hands it back as its own output. The mutation and aliasing checks stop it."""
# case: reference=identity_relu device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if float(x.view(-1)[0]) < 0 or bool((x.view(-1)[:64] < 0).any()):
            x.relu_()
        return x.detach()
