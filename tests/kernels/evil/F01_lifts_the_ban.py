"""Looks for what its runner would use to take torch's operators away and puts in its place what takes nothing.
Whether the kernels are a candidate's own is decided where the candidate's Python cannot reach."""
# case: reference=rows_softmax device=any backend=cpp expect=refused require_kernels=yes target=here
# aims: harness.processes.runner.forbidden harness.provenance.operators.ALLOWED

import contextlib
import functools
import sys

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


@contextlib.contextmanager
def allowed(*args, **kwargs):
    yield []


for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "dvk":
        if "forbidden" in vars(module):
            module.forbidden = allowed
            reached()
        if isinstance(vars(module).get("ALLOWED"), frozenset):
            module.ALLOWED = frozenset(one.partition("::")[2].partition(".")[0] for one in torch._C._dispatch_get_all_op_names())


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
