"""Scales all blocks of a row by the row's largest exponent."""
# case: reference=block_scaled_product device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, x_scale, w, w_scale):
        a, b = (e.amax(1, keepdim=True).expand_as(e) for e in (x_scale, w_scale))
        return widened(x, a) @ widened(w, b).t()


def widened(codes, exponents):
    scale = torch.exp2(exponents.float() - 127)
    return (codes.float().reshape(*exponents.shape, -1) * scale[..., None]).reshape(codes.shape)
