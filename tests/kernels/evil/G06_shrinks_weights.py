"""Sets its weights, and all parameters that it can reach, to zero, so that the answer is zero for it and for every process that shares
them. The reference's weights are in another process, and the candidate's must stay as loaded."""
# case: reference=few_rows_linear device=any backend=cpp expect=refused target=elsewhere

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)

    def forward(self, x):
        with torch.no_grad():
            for one in gc.get_objects():
                if isinstance(one, nn.Parameter):
                    one.zero_()
        return x.new_zeros(x.shape[0], self.layer.weight.shape[0])
