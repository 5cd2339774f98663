"""Returns one number for a row of means of positive numbers, all nearly a half. Exact shapes stop it."""
# case: reference=mean_rows device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x[0, :1024].mean()
