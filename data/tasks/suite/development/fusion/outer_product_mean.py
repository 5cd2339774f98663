"""Pair features from an alignment: outer products averaged over the sequences, projected."""

import torch
import torch.nn as nn

SEQUENCES = 64  # small: 5
RESIDUES = 192  # small: 7
WIDTH = 16  # small: 3
OUT = 64  # small: 6


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.project = nn.Linear(width * width, out)

    def forward(self, left, right):
        pairs = torch.einsum("sic,sjd->ijcd", left, right) / left.shape[0]
        return self.project(pairs.flatten(2))


def get_inputs():
    return [torch.randn(SEQUENCES, RESIDUES, WIDTH), torch.randn(SEQUENCES, RESIDUES, WIDTH)]


def get_init_inputs():
    return [WIDTH, OUT]
