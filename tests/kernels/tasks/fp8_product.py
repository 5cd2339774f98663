"""A product of 8-bit floats with one scale each."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w, x_scale, w_scale):
        return (x.float() @ w.float().t()) * (x_scale * w_scale)


def get_inputs():
    x, w = torch.randn(48, 256), torch.randn(64, 256)
    x_scale, w_scale = x.abs().amax() / 448, w.abs().amax() / 448
    return [(x / x_scale).to(torch.float8_e4m3fn), (w / w_scale).to(torch.float8_e4m3fn), x_scale, w_scale]


def get_init_inputs():
    return []
