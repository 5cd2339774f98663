"""`dvk optimize` as the tests call it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cli import warm

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = (
    "judge.search_s=0.1",
    "judge.claim_s=0.2",
    "judge.claim_pairs=20",
    "judge.num_seeds=1",
    "optimize.own_kernels=true",  # torch.compile takes half a minute; see test_portfolio and test_lines
)

QUICK = ("--budget-s", "3", *(word for setting in SETTINGS for word in ("--set", setting)))

CHAIN = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 512))
        self.slope = slope
    def forward(self, x, y):
        z = x * self.gain + y
        for _ in range(12):  # twenty-odd passes over memory become one: faster on any machine, however busy
            z = (z - self.slope * y).abs().clamp(max=3.0) + x
        return z.square()
def get_inputs():
    return [torch.randn(512, 512), torch.randn(512, 512)]
def get_init_inputs():
    return [0.3]
"""


def dvk(*args: object, cwd: Path, exits: int | None = 0) -> subprocess.CompletedProcess[str]:
    return warm.dvk("optimize", *args, cwd=cwd, exits=exits)
