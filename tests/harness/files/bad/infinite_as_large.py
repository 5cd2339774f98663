import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x * 3).masked_fill_(x > 1, 3e38)
