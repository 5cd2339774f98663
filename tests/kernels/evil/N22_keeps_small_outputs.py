"""Keeps every answer, each of which is a few bytes. Outputs that are still held stop it."""
# case: reference=token_loss device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn

kept = []


class ModelNew(nn.Module):
    def forward(self, x, target):
        loss = torch.nn.functional.cross_entropy(x, target)
        kept.append(loss)
        return loss
