"""Returns a tensor with memory whose subclass computes at the first read of its address, its bytes or its values.
Asking for the address belongs to the call: the clock runs until the output has been read."""
# case: reference=rows_softmax device=any backend=cpp expect=unflattered

import torch
import torch.nn as nn

QUIET = {"shape", "dtype", "device", "layout", "requires_grad", "is_sparse", "is_quantized", "is_cuda", "is_cpu", "grad"}
QUIET_CALLS = {"stride", "size", "dim", "is_floating_point", "is_complex", "is_contiguous", "numel", "element_size",
               "storage_offset", "is_conj", "is_neg"}  # fmt: skip


class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name == "__get__":
            name = getattr(function.__self__, "__name__", "")
        if name not in QUIET | QUIET_CALLS:
            for one in args:
                if isinstance(one, Later) and (todo := one.__dict__.pop("todo", None)) is not None:
                    todo()
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, x):
        plain = torch.empty_like(x)
        y = plain.as_subclass(Later)
        y.__dict__["todo"] = lambda: torch.softmax(x, -1, out=plain)
        return y
