"""Texts and modules for tests of drop-ins."""

from __future__ import annotations

import itertools
import sys
import types
from typing import Any

import pytest
import torch
from torch import nn

from tests.composer.programs import differences, drop_in, run_source

_numbers = itertools.count()

BLOCK = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width=8, slope=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.drop = nn.Dropout(0.5)
        self.gains = nn.ParameterList([torch.rand(width)])
        self._slope = slope

    def forward(self, x, skip=None):
        y = self.norm(x)
        for layer in self.layers:
            y = F.leaky_relu(layer(y), self._slope) * self.gains[0]
        y = self.drop(y)
        return y if skip is None else y + skip
"""


def importable(module: types.ModuleType) -> types.ModuleType:
    """The module under a unique name among those that are imported, as Dynamo wants it."""
    module.__name__ = f"drop_in_{next(_numbers)}"
    sys.modules[module.__name__] = module
    for value in vars(module).values():
        if getattr(value, "__module__", None) in ("candidate", "reference"):
            value.__module__ = module.__name__
    return module


class Counting:
    """A drop-in whose fused runs are counted."""

    def __init__(
        self,
        source: str,
        *args: Any,
        init: tuple[Any, ...] = (),
        training: bool = False,
        **options: Any,
    ):
        self.module, self.reference, self.candidate = drop_in(
            source, *args, init=init, training=training, **options
        )
        self.args = args
        self.runs = 0
        run = self.module.ModelNew._dvk_run

        def counted(this: nn.Module, *given: Any) -> Any:
            self.runs += 1
            return run(this, *given)

        self.module.ModelNew._dvk_run = counted
        self.new = self.build(*init).train(training)

    def build(self, *init: Any) -> nn.Module:
        """Another ModelNew, with the reference's weights where they fit."""
        new = self.module.ModelNew(*init)
        if {k: v.shape for k, v in new.state_dict().items()} == {
            k: v.shape for k, v in self.reference.state_dict().items()
        }:
            new.load_state_dict(self.reference.state_dict())
        return new.train(self.reference.training)

    def fused(self, *args: Any, model: nn.Module | None = None, **kwargs: Any) -> tuple[bool, Any]:
        """Whether a call ran the fused program, and its result."""
        before = self.runs
        result = (model or self.new)(*args, **kwargs)
        return self.runs > before, result


TWO = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n{init}\n    def forward(self, {params}):\n{body}\n"


def module_text(body: str, params: str = "x", init: str = "") -> str:
    constructor = "    def __init__(self):\n        super().__init__()\n" + "".join(
        f"        {line}\n" for line in init.splitlines()
    )
    return TWO.format(
        init=constructor,
        params=params,
        body="".join(f"        {line}\n" for line in body.splitlines()),
    )


@pytest.fixture(scope="module")
def shared_block() -> Counting:
    torch.manual_seed(0)
    return Counting(BLOCK, torch.randn(4, 8))


@pytest.fixture
def block(shared_block: Counting) -> Counting:
    """A drop-in with fresh weights and state for each test."""
    shared_block.reference = run_source(BLOCK).Model().eval()
    shared_block.new = shared_block.build()
    return shared_block


def agree(
    block: Counting, *args: Any, fused: bool, model: nn.Module | None = None, **kwargs: Any
) -> None:
    was, got = block.fused(*args, model=model, **kwargs)
    assert was is fused
    assert differences(got, block.reference(*args, **kwargs)) == []
