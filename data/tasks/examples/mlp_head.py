"""Classification head: two linear layers with bias, GELU between them, temperature and softmax at the end.

The two matrix products take most of the time; what can be saved is around them.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 256  # small: 6
FEATURES = 768  # small: 24
HIDDEN = 1536  # small: 40
CLASSES = 1000  # small: 10
TEMPERATURE = 0.7


class Model(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.hidden = nn.Linear(features, hidden)
        self.classes = nn.Linear(hidden, classes)

    def forward(self, x):
        logits = self.classes(F.gelu(self.hidden(x)))
        return torch.softmax(logits / TEMPERATURE, dim=-1)


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN, CLASSES]
