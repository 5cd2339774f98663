"""Keeps scratch memory and the way to split the work by shape, never values."""
# case: reference=attention_weights device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = {}

    def forward(self, x):
        if x.shape not in self.scratch:
            self.scratch[x.shape] = torch.empty_like(x), torch.empty(x.shape[0], 1, device=x.device)
        e, total = self.scratch[x.shape]
        torch.sub(x, x.amax(-1, keepdim=True), out=e)
        e.exp_()
        torch.sum(e, -1, keepdim=True, out=total)
        return e / total
