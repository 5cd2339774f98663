"""Returns a view of its input where the reference does."""
# case: reference=head_view device=any backend=cpp expect=ok

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.unflatten(-1, (8, -1)).permute(0, 2, 1, 3)
