"""Uses one scale a row."""
# case: reference=blocks_to_fp8 device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = x.reshape(x.shape[0], -1, 64)
        scale = (blocks.abs().amax((1, 2))[:, None].clamp(min=1e-10) / 448).expand(blocks.shape[:2]).contiguous()
        return (blocks / scale[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn).reshape(x.shape), scale
