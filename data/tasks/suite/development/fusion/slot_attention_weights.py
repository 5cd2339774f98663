"""Slots compete for inputs: scores by einsum, softmax over the slots, then a weighted mean over the inputs."""

import torch
import torch.nn as nn

BATCH = 64  # small: 2
SLOTS = 12  # small: 4
INPUTS = 4096  # small: 21
WIDTH = 64  # small: 8


class Model(nn.Module):
    def forward(self, slots, keys, values):
        weights = torch.einsum("bsd,bnd->bsn", slots, keys).softmax(dim=1) + 1e-6
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return torch.einsum("bsn,bnd->bsd", weights, values)


def get_inputs():
    return [torch.randn(BATCH, SLOTS, WIDTH) * 0.3, torch.randn(BATCH, INPUTS, WIDTH), torch.randn(BATCH, INPUTS, WIDTH)]


def get_init_inputs():
    return []
