"""Lets the library use bfloat16 for float32 products, which CPUs with matrix units then do. A tolerance below that stops it."""
# case: reference=matmul device=any backend=cpp expect=unflattered

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        torch.set_float32_matmul_precision("medium")
        return a @ b
