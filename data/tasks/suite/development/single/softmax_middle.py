"""Softmax over the middle of three dimensions: slots compete for every position."""

import torch
import torch.nn as nn

BATCH = 96  # small: 3
SLOTS = 384  # small: 13
POSITIONS = 1024  # small: 21


class Model(nn.Module):
    def forward(self, logits):
        return logits.softmax(dim=1)


def get_inputs():
    return [torch.randn(BATCH, SLOTS, POSITIONS) * 2]


def get_init_inputs():
    return []
