"""Dense block: four layers of batch norm, ReLU and convolution, each fed with all features before it, then a transition."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
CHANNELS = 64  # small: 6
GROWTH = 32  # small: 3
LAYERS = 4  # small: 3
SIDE = 28  # small: 8


def norm_of(channels):
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, 0.6, 1.4)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    norm.running_mean.normal_(0.0, 0.2)
    norm.running_var.uniform_(0.3, 1.0)
    return norm


class Model(nn.Module):
    def __init__(self, channels, growth, layers):
        super().__init__()
        inputs = [channels + i * growth for i in range(layers)]
        self.norms = nn.ModuleList([norm_of(c) for c in inputs])
        self.convs = nn.ModuleList([nn.Conv2d(c, growth, 3, padding=1, bias=False) for c in inputs])
        total = channels + layers * growth
        self.last = nn.Sequential(norm_of(total), nn.ReLU(), nn.Conv2d(total, total // 2, 1, bias=False), nn.AvgPool2d(2))
        self.eval()

    def forward(self, x):
        features = [x]
        for norm, conv in zip(self.norms, self.convs):
            features.append(conv(torch.relu(norm(torch.cat(features, dim=1)))))
        return self.last(torch.cat(features, dim=1))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, GROWTH, LAYERS]
