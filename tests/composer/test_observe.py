"""What a capture notes leaves the process as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import torch
from dvk.composer.capture.observe import mode_reads

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def asks(x):
    return x * 2 if torch.is_grad_enabled() else x

with mode_reads(Model()):
    torch.compile(lambda x: torch.relu(x), backend="eager")(torch.ones(2))
print(torch.compile(asks, fullgraph=True, backend="eager")(torch.ones(3)).sum().item())
"""


@pytest.mark.slow
def test_torch_compile_that_first_runs_in_a_capture_knows_torchs_functions_after_it() -> None:
    # Dynamo makes its tables once a process: hence a process.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout.strip()) == (0, "6.0"), done.stderr[-2000:]
