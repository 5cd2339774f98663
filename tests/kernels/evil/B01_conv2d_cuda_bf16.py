"""A convolution in bfloat16 on a GPU, where the reference's own class is TF32. The class's tolerance stops it."""
# case: reference=conv2d device=cuda backend=cpp expect=refused

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        y = F.conv2d(x.bfloat16(), self.conv.weight.bfloat16(), padding=1).float()
        return y + self.conv.bias[:, None, None]
