"""Takes the eight largest, however many are asked for. Other counts stop it."""
# case: reference=top_mean device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, count):
        return x.topk(8, -1).values.mean(-1)
