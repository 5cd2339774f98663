"""Sentence embedding: tokens averaged where a mask counts them, scaled to unit length."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 128  # small: 3
TOKENS = 512  # small: 11
WIDTH = 768  # small: 26


class Model(nn.Module):
    def forward(self, tokens, mask):
        counted = mask.unsqueeze(-1).to(tokens.dtype)
        mean = (tokens * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1e-9)
        return F.normalize(mean, p=2.0, dim=1)


def get_inputs():
    mask = (torch.rand(BATCH, TOKENS) < 0.7).long()
    return [torch.randn(BATCH, TOKENS, WIDTH), mask]


def get_init_inputs():
    return []
