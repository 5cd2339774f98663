"""An exponential from the bits of a float, 4 % off at worst, inside a softmax. A tolerance far below that stops it."""
# case: reference=attention_weights device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        scaled = (x - x.amax(-1, keepdim=True)).clamp_(min=-80) * 12102203.0 + 1064866805.0
        e = scaled.to(torch.int32).view(torch.float32)
        return e / e.sum(-1, keepdim=True)
