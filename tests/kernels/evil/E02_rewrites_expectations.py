"""Finds everything that compares or expects by the garbage collector and sets tolerances to infinity. None of it is in this process."""
# case: reference=matmul device=any backend=cpp expect=refused target=elsewhere
# aims: harness.checking.case.Case.tolerance harness.checking.compare.ExpectedLeaf.rms harness.checking.tolerance.Errors.worst

import contextlib
import gc

import torch
import torch.nn as nn


def widen():
    for thing in gc.get_objects():
        for name in ("tolerance", "rms", "worst"):
            with contextlib.suppress(Exception):
                if isinstance(thing.__dict__.get(name), float):
                    object.__setattr__(thing, name, 1e30)


class ModelNew(nn.Module):
    def forward(self, a, b):
        widen()
        return torch.zeros(a.shape[0], b.shape[1], device=a.device)
