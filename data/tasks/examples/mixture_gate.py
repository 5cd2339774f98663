"""Soft mixture of experts: softmax gate, experts below a threshold dropped, weighted sum of the rest."""

import torch
import torch.nn as nn

TOKENS = 1024  # small: 9
EXPERTS = 8  # small: 4
WIDTH = 512  # small: 20


class Model(nn.Module):
    def __init__(self, experts, threshold=0.05):
        super().__init__()
        self.prior = nn.Parameter(torch.randn(experts) * 0.5)
        self.threshold = threshold

    def forward(self, gate_logits, expert_outputs):
        gate = torch.softmax(gate_logits + self.prior, dim=-1)
        gate = torch.where(gate < self.threshold, torch.zeros_like(gate), gate)
        gate = gate / gate.sum(dim=-1, keepdim=True)
        return (gate.unsqueeze(-1) * expert_outputs).sum(dim=1)


def get_inputs():
    return [torch.randn(TOKENS, EXPERTS), torch.randn(TOKENS, EXPERTS, WIDTH)]


def get_init_inputs():
    return [EXPERTS]
