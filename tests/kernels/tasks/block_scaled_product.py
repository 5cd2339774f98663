"""A product of 8-bit floats with a power of two for each block of 32, stored as its exponent."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, x_scale, w, w_scale):
        return widened(x, x_scale) @ widened(w, w_scale).t()


def widened(codes, exponents):
    scale = torch.exp2(exponents.float() - 127)
    return (codes.float().reshape(*exponents.shape, -1) * scale[..., None]).reshape(codes.shape)


def get_inputs():
    def quantised(wide):
        blocks = wide.reshape(wide.shape[0], -1, 32)
        exponents = torch.floor(torch.log2(blocks.abs().amax(-1))) - 8
        codes = (blocks * torch.exp2(-exponents)[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
        return codes.reshape(wide.shape), (exponents + 127).to(torch.uint8)

    return [*quantised(torch.randn(48, 256)), *quantised(torch.randn(64, 256))]


def get_init_inputs():
    return []
