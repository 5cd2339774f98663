"""Looks for what its runner would use to take torch's operators away and puts in its place what takes nothing.
Whether the kernels are a candidate's own is decided where the candidate's Python cannot reach."""
# case: reference=rows_softmax device=any backend=cpp expect=refused require_kernels=yes

import contextlib
import sys

import torch
import torch.nn as nn


@contextlib.contextmanager
def allowed(*args, **kwargs):
    yield []


for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "dvk":
        for key in [key for key in vars(module) if key in ("forbidden", "banned", "without_operators")]:
            setattr(module, key, allowed)
        if isinstance(vars(module).get("ALLOWED"), frozenset):
            module.ALLOWED = frozenset(one.partition("::")[2].partition(".")[0] for one in torch._C._dispatch_get_all_op_names())


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
