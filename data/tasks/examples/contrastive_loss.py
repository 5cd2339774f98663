"""Symmetric contrastive loss of an image and a text tower: normalise, similarities, cross entropy both ways.

A matrix product in the middle, and reductions over rows and over columns of its result.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

PAIRS = 1024  # small: 13
EMBEDDING = 256  # small: 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(2.3))

    def forward(self, images, texts):
        images = F.normalize(images, dim=-1)
        texts = F.normalize(texts, dim=-1)
        logits = self.log_scale.exp() * images @ texts.t()
        matching = logits.diagonal()
        by_image = torch.logsumexp(logits, dim=1) - matching
        by_text = torch.logsumexp(logits, dim=0) - matching
        return 0.5 * (by_image + by_text).mean(), logits


def get_inputs():
    shared = torch.randn(PAIRS, EMBEDDING)
    return [shared + torch.randn(PAIRS, EMBEDDING), shared + torch.randn(PAIRS, EMBEDDING)]


def get_init_inputs():
    return []
