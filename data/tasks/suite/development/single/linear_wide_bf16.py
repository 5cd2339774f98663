"""Square projection with bias of bfloat16 tokens, as in a decoder of four thousand features."""

import torch
import torch.nn as nn

TOKENS = 512  # small: 9
FEATURES = 4096  # small: 48


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.project = nn.Linear(features, features, dtype=torch.bfloat16)

    def forward(self, x):
        return self.project(x)


def get_inputs():
    return [torch.randn(TOKENS, FEATURES).bfloat16()]


def get_init_inputs():
    return [FEATURES]
