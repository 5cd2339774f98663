"""Image to tokens: a convolution whose stride is its kernel, so that patches do not overlap."""

import torch
import torch.nn as nn

BATCH = 64  # small: 2
SIDE = 224  # small: 24
PATCH = 16  # small: 6
WIDTH = 768  # small: 20


class Model(nn.Module):
    def __init__(self, patch, width):
        super().__init__()
        self.project = nn.Conv2d(3, width, kernel_size=patch, stride=patch)

    def forward(self, images):
        return self.project(images)


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE)]


def get_init_inputs():
    return [PATCH, WIDTH]
