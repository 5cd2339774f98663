"""Makes every comparison that torch offers find its operands equal and nothing NaN, then returns zeros.
Comparisons happen in a process that the candidate never enters."""
# case: reference=gelu_affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn

yes = torch.tensor(True)
for owner in (torch, torch.Tensor):
    for name in ("allclose", "equal"):
        setattr(owner, name, lambda *args, **kwargs: True)
    for name in ("isclose", "eq", "isfinite"):
        setattr(owner, name, lambda a, *args, **kwargs: torch.ones(a.shape, dtype=torch.bool, device=a.device))
    owner.isnan = lambda a: torch.zeros(a.shape, dtype=torch.bool, device=a.device)
torch.testing.assert_close = lambda *args, **kwargs: None
torch.Tensor.max = lambda a, *args, **kwargs: torch.zeros((), dtype=a.dtype, device=a.device)
torch.Tensor.any = lambda a, *args, **kwargs: torch.zeros((), dtype=torch.bool)
torch.Tensor.all = lambda a, *args, **kwargs: yes
torch.Tensor.__gt__ = lambda a, b: torch.zeros(a.shape, dtype=torch.bool, device=a.device)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return torch.zeros_like(x)
