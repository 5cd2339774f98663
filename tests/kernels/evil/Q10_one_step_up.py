"""Is one code off in one element of thirty-two."""
# case: reference=blocks_to_fp8 device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = x.reshape(x.shape[0], -1, 64)
        scale = blocks.abs().amax(-1).clamp(min=1e-10) / 448
        codes = (blocks / scale[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn).reshape(x.shape)
        bits = codes.view(torch.uint8).clone()
        bits[:, ::32] ^= 1
        return torch.where((bits & 127) == 127, codes.view(torch.uint8), bits).view(torch.float8_e4m3fn), scale
