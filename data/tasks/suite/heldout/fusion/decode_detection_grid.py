"""Decode a detector's raw output: box centres by sigmoid and cell, sizes by exponential and anchor, scores, one table."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
ANCHORS = 3  # small: 2
SIDE = 68  # small: 5
CLASSES = 20  # small: 4
STRIDE = 8


class Model(nn.Module):
    def __init__(self, anchors, side):
        super().__init__()
        rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        self.register_buffer("cells", torch.stack((columns, rows), dim=-1).float())
        self.register_buffer("anchors", torch.rand(anchors, 1, 1, 2) * 90 + 10)
    def forward(self, raw):
        centres = (torch.sigmoid(raw[..., :2]) + self.cells) * STRIDE
        sizes = torch.exp(raw[..., 2:4].clamp(max=4.0)) * self.anchors
        return torch.cat((centres, sizes, torch.sigmoid(raw[..., 4:])), dim=-1)


def get_inputs():
    return [torch.randn(BATCH, ANCHORS, SIDE, SIDE, 5 + CLASSES)]


def get_init_inputs():
    return [ANCHORS, SIDE]
