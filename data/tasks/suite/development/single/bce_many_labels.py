"""Binary cross entropy of many labels from logits, positives weighted by class, no reduction."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SAMPLES = 16384  # small: 11
LABELS = 1203  # small: 18


class Model(nn.Module):
    def __init__(self, labels):
        super().__init__()
        self.register_buffer("positive", 1 + 4 * torch.rand(labels))

    def forward(self, logits, targets):
        return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=self.positive, reduction="none")


def get_inputs():
    return [torch.randn(SAMPLES, LABELS) * 2, (torch.rand(SAMPLES, LABELS) < 0.2).float()]


def get_init_inputs():
    return [LABELS]
