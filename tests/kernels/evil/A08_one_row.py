"""Returns one row, which broadcasts against the expected output. Exact shapes stop it."""
# case: reference=copied_mean device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True)
