"""A training task has a gradient, or it is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk.errors import TaskError
from dvk.tasks import load

FILE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.rand(4, 8) + 0.5]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("(x > self.bias).float()", "no output depends on an input or a weight"),
        ("torch.igamma(x + self.bias, x)", "has no gradients: .*not implemented"),
    ],
)
def test_refuses_what_has_no_gradient(tmp_path: Path, result: str, why: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(FILE.format(result=result))
    with pytest.raises(TaskError, match=why) as caught:
        load(str(path), train=True)
    assert "--train" in caught.value.hint
    assert not load(str(path)).train
