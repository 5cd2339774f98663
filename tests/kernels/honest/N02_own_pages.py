"""Its output lies in pages that it mapped itself, written before the return."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

import mmap

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        pages = mmap.mmap(-1, x.numel() * 4)
        y = torch.frombuffer(pages, dtype=torch.float32).view(x.shape)
        return torch.softmax(x, -1, out=y)
