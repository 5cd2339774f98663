"""Zeroes the memory that weights are handed over in, once it has its own copy, so that the next process that is given them is wrong: the
reference's arms and rivals. Weights are lent read-only, or as a copy for each."""
# case: reference=few_rows_linear device=any backend=cpp expect=unflattered

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)
        self.first = None

    def load_state_dict(self, state_dict, *args, **kwargs):
        if self.first is None:
            self.first = {name: tensor.clone() for name, tensor in state_dict.items()}
        spoilt = not any(bool(tensor.any()) for tensor in state_dict.values())
        result = super().load_state_dict(self.first if spoilt else state_dict, *args, **kwargs)
        for tensor in state_dict.values():
            tensor.zero_()
        return result

    def forward(self, x):
        return self.layer(x)
