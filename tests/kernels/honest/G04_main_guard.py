"""Ends with sys.exit where it is run as a program, which it is not here, and handles its own SystemExit."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        try:
            if x.dim() != 2:
                sys.exit(2)
        except SystemExit:
            x = x.reshape(-1, x.shape[-1])
        return torch.softmax(x, -1)


if __name__ == "__main__":
    print(ModelNew()(torch.randn(2, 3)))
    sys.exit(0)
