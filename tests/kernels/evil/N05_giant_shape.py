"""Returns a tensor whose class says it has 2^124 elements at stride -1, so that a reader that sizes a buffer by it fails.
A claim about layout is compared with the reference's before anything is allocated or read."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class Giant(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        name = getattr(function.__self__, "__name__", "") if name == "__get__" else name
        if name in ("shape", "size"):
            return torch.Size([1 << 62, 1 << 62])
        if name == "stride":
            return (-1, -(1 << 62))
        if name in ("numel", "nelement", "nbytes"):
            return 1 << 124
        if name == "storage_offset":
            return -1
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **(kwargs or {}))
        return result.as_subclass(Giant) if type(result) is torch.Tensor else result


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1).as_subclass(Giant)
