"""Wraps every function of the harness that is loaded in its process: comparisons find nothing wrong, times shrink.
What compares and what times is in processes that the candidate never enters; what is wrapped here decides nothing."""
# case: reference=rows_softmax device=any backend=cpp expect=refused target=here
# aims: harness.checking.compare.values harness.checking.compare.same_bits harness.transport.process_memory.equal

import functools
import sys
import types

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


calls = 0


def wrapped(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        before = calls
        result = function(*args, **kwargs)
        if type(result) is float and calls != before:
            return result / 20
        if function.__name__ == "values":
            return 0.0, None
        if function.__name__ in ("same_bits", "equal"):
            return True
        return result

    return inner


def sabotage():
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "dvk":
            continue
        for owner in [module, *(v for v in vars(module).values() if isinstance(v, type) and v.__module__.startswith("dvk"))]:
            for key, value in list(vars(owner).items()):
                if isinstance(value, types.FunctionType) and not key.startswith("__"):
                    try:
                        setattr(owner, key, wrapped(value))
                        if key == "same_bits":
                            reached()
                    except (AttributeError, TypeError):
                        pass


class ModelNew(nn.Module):
    def forward(self, x):
        global calls
        if calls == 0:
            sabotage()
        calls += 1
        return torch.zeros_like(x)
