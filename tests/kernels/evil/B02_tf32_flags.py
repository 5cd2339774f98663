"""Turns TF32 on for all matrix products of the process. A tolerance below that rounding stops it."""
# case: reference=matmul device=cuda backend=cpp expect=refused

import torch
import torch.nn as nn

torch.backends.cuda.matmul.allow_tf32 = True


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
