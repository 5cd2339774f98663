"""Image decoder of a latent autoencoder: residual convolutions, attention over pixels, two nearest upsamplings, output."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 2  # small: 2
LATENT = 4  # small: 3
CHANNELS = 64  # small: 8
SIDE = 24  # small: 4
GROUPS = 16  # small: 4


class Unit(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv(F.silu(self.norm(x)))


class Attend(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.q, self.v, self.out = (nn.Conv2d(channels, channels, 1) for _ in range(3))
        self.k = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, x):
        q, k, v = (layer(x).flatten(2).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).view_as(x))


class Model(nn.Module):
    def __init__(self, latent, channels, groups):
        super().__init__()
        self.enter = nn.Conv2d(latent, channels, 3, padding=1)
        self.middle = nn.Sequential(Unit(channels, groups), Attend(channels), Unit(channels, groups))
        self.ups = nn.ModuleList([Unit(channels, groups) for _ in range(2)])
        self.leave = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, latent):
        x = self.middle(self.enter(latent))
        for unit in self.ups:
            x = unit(F.interpolate(x, scale_factor=2, mode="nearest"))
        return torch.tanh(self.leave(x))


def get_inputs():
    return [torch.randn(BATCH, LATENT, SIDE, SIDE)]


def get_init_inputs():
    return [LATENT, CHANNELS, GROUPS]
