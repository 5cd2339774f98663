"""Keeps memory for its answers, and writes over what is no longer referenced, as an allocator does."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import torch
import torch.nn as nn


def uses(tensor):
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


UNUSED = uses(torch.empty(1))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = {}

    def forward(self, x):
        pool = self.pool.setdefault(x.shape, [])
        y = next((kept for kept in pool if uses(kept) <= UNUSED), None)
        if y is None:
            y = torch.empty_like(x)
            pool.append(y)
        return torch.softmax(x, -1, out=y.view(x.shape))
