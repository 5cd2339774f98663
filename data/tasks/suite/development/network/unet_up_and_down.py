"""One level of a U-Net: two convolutions, pooling, a bottom, upsampling, the skip joined, two convolutions, class logits."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4  # small: 2
CHANNELS = 32  # small: 3
SIDE = 96  # small: 8
CLASSES = 5  # small: 4


def twice(channels_in, channels_out):
    layers = []
    for size in (channels_in, channels_out):
        layers += [
            nn.Conv2d(size, channels_out, 3, padding=1, bias=False),
            nn.InstanceNorm2d(channels_out, affine=True),
            nn.LeakyReLU(0.01),
        ]
    for layer in layers[1::3]:
        nn.init.normal_(layer.weight, 1.0, 0.2)
        nn.init.normal_(layer.bias, 0.0, 0.2)
    return nn.Sequential(*layers)


class Model(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.down = twice(1, channels)
        self.bottom = twice(channels, 2 * channels)
        self.up = twice(3 * channels, channels)
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        skip = self.down(x)
        deep = self.bottom(F.max_pool2d(skip, 2))
        deep = F.interpolate(deep, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.up(torch.cat((skip, deep), dim=1)))


def get_inputs():
    return [torch.randn(BATCH, 1, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, CLASSES]
