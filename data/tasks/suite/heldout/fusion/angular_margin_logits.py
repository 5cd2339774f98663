"""Face recognition logits: unit features times unit class centres, a margin taken from the right class, scaled."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 512  # small: 5
WIDTH = 448  # small: 12
CLASSES = 12000  # small: 19


class Model(nn.Module):
    def __init__(self, width, classes, margin, scale):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(classes, width))
        self.margin, self.scale = margin, scale
    def forward(self, features, labels):
        cosine = F.linear(F.normalize(features), F.normalize(self.centres))
        right = torch.arange(cosine.shape[1], device=labels.device) == labels.unsqueeze(1)
        return self.scale * torch.where(right, cosine - self.margin, cosine)


def get_inputs():
    return [torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))]


def get_init_inputs():
    return [WIDTH, CLASSES, 0.35, 30.0]
