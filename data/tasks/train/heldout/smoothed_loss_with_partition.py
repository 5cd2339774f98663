"""Label-smoothed cross entropy with a penalty on the partition function."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 4096  # cpu: 256  # small: 6
VOCABULARY = 32000  # cpu: 8192  # small: 37


class Model(nn.Module):
    def forward(self, logits, targets):
        loss = F.cross_entropy(logits, targets, label_smoothing=0.1)
        return loss + 1e-4 * torch.logsumexp(logits, dim=-1).square().mean()


def get_inputs():
    return [2.0 * torch.randn(TOKENS, VOCABULARY), torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return []
