import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp(min=0).mul_(2).add_(1).t().contiguous().t()
