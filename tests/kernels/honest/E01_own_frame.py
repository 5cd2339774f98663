"""Looks at its own frame for a name to report in profiles, no further."""
# case: reference=elu device=any backend=cpp expect=ok

import inspect

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.profiler.record_function(inspect.currentframe().f_code.co_name):
            return torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))
