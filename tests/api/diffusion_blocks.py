"""A stack of a diffusion U-Net's blocks in plain PyTorch: residual convolutions with a time embedding, then attention to a context.

dvk optimize --model tests/api/diffusion_blocks.py:blocks --config channels=320
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

SIDE, CHANNELS, CONTEXT, HEADS = 32, 320, 768, 8


class Residual(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, channels), nn.GroupNorm(32, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(time))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    def __init__(self, channels: int, context: int):
        super().__init__()
        self.to_q = nn.Linear(channels, channels, bias=False)
        self.to_k = nn.Linear(context, channels, bias=False)
        self.to_v = nn.Linear(context, channels, bias=False)
        self.to_out = nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        def split(t: torch.Tensor) -> torch.Tensor:
            return t.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        q, k, v = split(self.to_q(x)), split(self.to_k(context)), split(self.to_v(context))
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.norm3 = nn.LayerNorm(channels)
        self.itself, self.across = Attention(channels, channels), Attention(channels, CONTEXT)
        self.wide, self.out = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        batch, channels, high, wide = x.shape
        y = x.flatten(2).transpose(1, 2)
        n = self.norm1(y)
        y = y + self.itself(n, n)
        y = y + self.across(self.norm2(y), context)
        value, gate = self.wide(self.norm3(y)).chunk(2, -1)
        y = y + self.out(value * F.gelu(gate))
        return x + y.transpose(1, 2).reshape(batch, channels, high, wide)


class Blocks(nn.Module):
    def __init__(self, channels: int, depth: int):
        super().__init__()
        self.residuals = nn.ModuleList(Residual(channels) for _ in range(depth))
        self.transformers = nn.ModuleList(Transformer(channels) for _ in range(depth))

    def forward(self, x: torch.Tensor, time: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        for residual, transformer in zip(self.residuals, self.transformers, strict=True):
            x = transformer(residual(x, time), context)
        return x


def blocks(channels: int = CHANNELS, depth: int = 3) -> nn.Module:
    return Blocks(channels, depth)


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(1, CHANNELS, SIDE, SIDE),
        torch.randn(1, 4 * CHANNELS),
        torch.randn(1, 77, CONTEXT),
    ]
