"""Computes a softmax on values rounded to TF32 and returns float32. A tolerance below that rounding stops it."""
# case: reference=attention_weights device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


def narrow(t):
    """Ten bits of mantissa, to the nearest, as tensor cores read a float32."""
    bits = t.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def forward(self, x):
        x = narrow(x)
        e = narrow(torch.exp(narrow(x - x.amax(-1, keepdim=True))))
        return e / e.sum(-1, keepdim=True)
