"""Returns a tensor that claims to lie where something else is: unmapped pages, the kernel's half, the vDSO's data, its input.
The judge reads what is there as the candidate's answer or cannot read it; both are wrong answers and no crash."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


def vvar():
    with open("/proc/self/maps") as file:
        return next((int(line.split("-")[0], 16) for line in file if "[vvar]" in line), 0x1000)


class Elsewhere(torch.Tensor):
    where = (0, 0x1000, -1, (1 << 64) - 4096, 0xFFFFFFFF81000000, vvar(), None, "here", float("nan"))
    calls = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in ("data_ptr", "const_data_ptr"):
            Elsewhere.calls += 1
            return cls.where[Elsewhere.calls % len(cls.where)]
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **(kwargs or {}))
        return result.as_subclass(Elsewhere) if type(result) is torch.Tensor else result


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.detach()  # its own values are nowhere
        return y.as_subclass(Elsewhere)
