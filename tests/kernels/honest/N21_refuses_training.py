"""Is for use after training only, and says so."""
# case: reference=norm_and_dropout device=any backend=cpp expect=ok

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.drop = nn.Dropout(0.2)
        self.eval()

    def forward(self, x):
        if self.training:
            raise NotImplementedError("after training only: call .eval()")
        return self.norm(self.conv(x)).relu_()
