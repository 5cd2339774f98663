"""Reads exponents within sixteen of their bias only."""
# case: reference=block_scaled_product device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, x_scale, w, w_scale):
        return widened(x, x_scale.clamp(111, 143)) @ widened(w, w_scale.clamp(111, 143)).t()


def widened(codes, exponents):
    scale = torch.exp2(exponents.float() - 127)
    return (codes.float().reshape(*exponents.shape, -1) * scale[..., None]).reshape(codes.shape)
