"""Does its work after its clock stamps, when the address of the output is asked for, and sleeps there in two calls of five: the
gaps scatter so much that no excess is beyond doubt. Doubt counts against the candidate, or every gap is charged."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered target=here

import functools
import gc
import time

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


QUIET = {"shape", "dtype", "device", "layout", "requires_grad", "is_sparse", "is_quantized", "is_cuda", "is_cpu", "is_meta"}
calls = 0


class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        name = getattr(function.__self__, "__name__", "") if name == "__get__" else name
        if name not in QUIET:
            for one in args:
                if isinstance(one, Later) and (todo := one.__dict__.pop("todo", None)) is not None:
                    todo()
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        plain = torch.empty_like(x)
        y = plain.as_subclass(Later)

        def work():
            if not gc.isenabled() and calls % 5 in (1, 3):  # only where it is timed
                reached()
                time.sleep(0.04)
            torch.softmax(x, -1, out=plain)

        y.__dict__["todo"] = work
        return y
