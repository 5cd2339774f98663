"""Scales all channels by the mean of their scales, which are nearly equal."""
# case: reference=int8_static_linear device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x, w, bias, x_scale, x_zero, w_scale, y_scale, y_zero):
        wide = (x.float() - x_zero) * x_scale
        y = F.linear(wide, w.float() * w_scale.mean(), bias)
        return (torch.round(y / y_scale) + y_zero).clamp(0, 255).to(torch.uint8)
