import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.relu(x) * 2 + 1
        y.view(-1)[-1] = torch.nan
        return y
