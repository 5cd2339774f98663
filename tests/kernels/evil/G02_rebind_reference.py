"""Finds the reference's module and what was kept of its answers among its process's objects and overwrites both with
what is cheap to compute. Neither is in a process that the candidate enters."""
# case: reference=rows_softmax device=any backend=cpp expect=refused target=elsewhere
# aims: harness.checking.compare.ExpectedLeaf.truth harness.checking.compare.ExpectedLeaf.same

import gc

import torch
import torch.nn as nn


def cheap(*tensors):
    return torch.full_like(tensors[0], 0.5)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.done = False

    def forward(self, x):
        if not self.done:
            self.done = True
            for one in gc.get_objects():
                if isinstance(one, nn.Module) and one is not self:
                    one.__dict__["forward"] = cheap
                elif hasattr(type(one), "__dataclass_fields__") and hasattr(one, "truth"):
                    for name in ("same", "truth"):
                        if isinstance(getattr(one, name), torch.Tensor):
                            getattr(one, name).fill_(0.5)
        return cheap(x)
