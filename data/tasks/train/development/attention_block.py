"""Pre-norm attention block: RMS norm, causal attention by PyTorch, projection, residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # cpu: 2  # small: 2
LENGTH = 1024  # cpu: 128  # small: 5
HEADS = 16  # cpu: 4  # small: 2
HEAD = 64  # cpu: 64  # small: 8


WIDTH = HEADS * HEAD


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)

    def forward(self, x):
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return []
