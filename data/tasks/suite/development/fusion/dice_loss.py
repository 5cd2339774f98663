"""Soft Dice loss of each class: sigmoid, overlap over the sum of both areas."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CLASSES = 8  # small: 3
SIDE = 512  # small: 12


class Model(nn.Module):
    def __init__(self, smooth):
        super().__init__()
        self.smooth = smooth

    def forward(self, logits, masks):
        found = torch.sigmoid(logits)
        overlap = (found * masks).sum(dim=(2, 3))
        area = found.sum(dim=(2, 3)) + masks.sum(dim=(2, 3))
        return 1 - (2 * overlap + self.smooth) / (area + self.smooth)


def get_inputs():
    share = torch.rand(BATCH, CLASSES, 1, 1)
    masks = (torch.rand(BATCH, CLASSES, SIDE, SIDE) < share).float()
    return [torch.randn(BATCH, CLASSES, SIDE, SIDE) + 4 * share - 2, masks]


def get_init_inputs():
    return [1.0]
