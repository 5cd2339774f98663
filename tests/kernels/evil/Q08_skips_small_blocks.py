"""Leaves out blocks whose scale is less than a sixteenth of the largest."""
# case: reference=block_scaled_product device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, x_scale, w, w_scale):
        def kept(codes, exponents):
            large = exponents.int() >= int(exponents.max()) - 4
            return widened(codes, exponents) * large.repeat_interleave(32, 1)
        return kept(x, x_scale) @ kept(w, w_scale).t()


def widened(codes, exponents):
    scale = torch.exp2(exponents.float() - 127)
    return (codes.float().reshape(*exponents.shape, -1) * scale[..., None]).reshape(codes.shape)
