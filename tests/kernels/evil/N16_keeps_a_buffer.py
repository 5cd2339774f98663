"""Returns a buffer of the module, which every call writes over. Buffers that are returned must not be taken for copies."""
# case: reference=rows_softmax device=cpu backend=cpp expect=refused twin=N16_keeps_its_output

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("y", torch.empty(512, 4096), persistent=False)

    def forward(self, x):
        if x.shape != self.y.shape:
            return torch.softmax(x, -1)
        return torch.softmax(x, -1, out=self.y)
