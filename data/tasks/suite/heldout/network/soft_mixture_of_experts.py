"""Soft mixture of experts: every slot takes a weighted mean of all tokens, an expert MLP for its slots, weighted back."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
TOKENS = 196  # small: 7
WIDTH = 320  # small: 12
EXPERTS = 12  # small: 3
SLOTS = 12  # small: 2
HIDDEN = 800  # small: 14


class Model(nn.Module):
    def __init__(self, width, experts, slots, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)
        self.phi = nn.Parameter(torch.randn(experts, slots, width) / width**0.5 * 2)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.up_bias = nn.Parameter(torch.randn(experts, 1, hidden) * 0.3)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)
    def forward(self, x):
        y = self.norm(x)
        logits = torch.einsum("btd,esd->btes", y, self.phi)
        dispatch = logits.softmax(dim=1)
        combine = logits.flatten(2).softmax(dim=-1).view_as(logits)
        taken = torch.einsum("btes,btd->besd", dispatch, y)
        hidden = F.gelu(torch.matmul(taken, self.up) + self.up_bias)
        return x + torch.einsum("btes,besd->btd", combine, torch.matmul(hidden, self.down))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, EXPERTS, SLOTS, HIDDEN]
