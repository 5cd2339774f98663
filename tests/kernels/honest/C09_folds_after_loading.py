"""Multiplies two layers' weights whenever load_state_dict has changed them."""
# case: reference=chained_linears device=any backend=cpp expect=ok

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden, out):
        super().__init__()
        self.first = nn.Linear(width, hidden, bias=False)
        self.second = nn.Linear(hidden, out, bias=False)
        self.folded = None
        self.register_load_state_dict_post_hook(lambda module, keys: setattr(module, "folded", None))

    def forward(self, x):
        if self.folded is None:
            self.folded = (self.second.weight.double() @ self.first.weight.double()).t().float().contiguous()
        return x @ self.folded
