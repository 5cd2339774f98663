"""Two blocks of an MLP without attention: half of the hidden features, normed and mixed along the tokens, gates the rest."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
TOKENS = 144  # small: 7
WIDTH = 256  # small: 10
HIDDEN = 1024  # small: 16


class Block(nn.Module):
    def __init__(self, tokens, width, hidden):
        super().__init__()
        self.norm, self.gate_norm = nn.LayerNorm(width), nn.LayerNorm(hidden // 2)
        for norm in (self.norm, self.gate_norm):
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden // 2, width)
        self.mix = nn.Conv1d(tokens, tokens, 1)
        nn.init.ones_(self.mix.bias)
    def forward(self, x):
        kept, gate = F.gelu(self.up(self.norm(x))).chunk(2, dim=-1)
        return x + self.down(kept * self.mix(self.gate_norm(gate)))


class Model(nn.Module):
    def __init__(self, tokens, width, hidden):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(tokens, width, hidden) for _ in range(2)))
    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return [TOKENS, WIDTH, HIDDEN]
