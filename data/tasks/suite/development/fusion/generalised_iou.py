"""Generalised intersection over union of box pairs, as a loss."""

import torch
import torch.nn as nn

BOXES = 4194304  # small: 41


class Model(nn.Module):
    def forward(self, first, second):
        low, high = torch.maximum(first[:, :2], second[:, :2]), torch.minimum(first[:, 2:], second[:, 2:])
        overlap = (high - low).clamp(min=0).prod(dim=1)
        areas = (first[:, 2:] - first[:, :2]).prod(dim=1) + (second[:, 2:] - second[:, :2]).prod(dim=1)
        union = areas - overlap
        hull = torch.maximum(first[:, 2:], second[:, 2:]) - torch.minimum(first[:, :2], second[:, :2])
        enclosing = hull.prod(dim=1)
        return 1 - overlap / union + (enclosing - union) / enclosing


def get_inputs():
    corners = torch.rand(2, BOXES, 2)
    return [torch.cat((c, c + 0.1 + torch.rand(BOXES, 2)), dim=1) for c in corners]


def get_init_inputs():
    return []
