"""dvk from Python: make a live module faster, look at what was found, keep it.

python quickstart.py [seconds that the search may take]
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

import dvk


class Residual(nn.Module):
    """Pre-norm residual branch with a layer scale."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * F.gelu(self.norm(x))


model = Residual(768).eval()
x = torch.randn(16, 197, 768)

result = dvk.optimize(model, x, budget_s=float(sys.argv[1]) if len(sys.argv) > 1 else 60)
print(result)  # the speedup over eager, with its 95 % interval
print("report:", result.report)

with torch.no_grad():
    fast = result.module(x)  # the same weights; the original module where nothing faster was proved
    torch.testing.assert_close(fast, model(x), rtol=1e-4, atol=1e-4)

if result.faster:
    print("drop-in:", result.save("fast.py"))  # needs torch alone: from fast import ModelNew
    print("again:", dvk.verify(model, result, x).status.value)
