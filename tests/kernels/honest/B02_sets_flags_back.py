"""Asks for the highest precision of products while it runs and leaves the process as it found it."""
# case: reference=matmul device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            return torch.mm(a, b)
        finally:
            torch.set_float32_matmul_precision(before)
