"""Scales by a reciprocal: a few values on a boundary round the other way."""
# case: reference=blocks_to_fp8 device=cpu backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = x.reshape(x.shape[0], -1, 64)
        most = blocks.abs().amax(-1).clamp(min=1e-10)
        return (blocks * (448 / most)[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn).reshape(x.shape), most * (1 / 448)
