"""Label-smoothed cross entropy of each row from log-probabilities and soft targets."""

import torch
import torch.nn as nn

ROWS = 4096  # small: 11
CLASSES = 10000  # small: 34


class Model(nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, targets):
        smooth = targets * (1 - self.smoothing) + self.smoothing / logits.shape[1]
        return -(smooth * torch.log_softmax(logits, dim=1)).sum(dim=1)


def get_inputs():
    return [torch.randn(ROWS, CLASSES) * 2, torch.softmax(torch.randn(ROWS, CLASSES) * 2, dim=1)]


def get_init_inputs():
    return [0.1]
