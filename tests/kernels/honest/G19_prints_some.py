"""Prints a hundred kilobytes, as a verbose compiler would."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import torch
import torch.nn as nn

for number in range(2000):
    print(f"note {number}: nothing to see here, ".ljust(50, "."))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
