"""One input set with what the reference made of it, and what became of a comparison with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dvk.harness.checking.case_keys import InputSetKey
from dvk.harness.checking.compare import ExpectedLeaf
from dvk.harness.checking.reference_runs import InputDraw
from dvk.harness.checking.sensitivity import Sensitivity
from dvk.harness.checking.tolerance import NONE, Errors, separation
from dvk.harness.transport.calls import Buffers
from dvk.tasks.trees import named_tensors


@dataclass
class Case:
    """One input set. The tensors in it are the judge's: lend copies."""

    key: InputSetKey
    """With the weight set it was made under, which is 0 where the one asked for does not suit the reference."""
    seed: int
    """Of all random generators during the call; another than of the inputs."""
    args: list[Any]
    kwargs: dict[str, Any]
    expected: list[ExpectedLeaf]
    spec_text: str
    buffers: Buffers
    """The module's buffers after the call."""
    loose: list[bool] | None = None
    """By input tensor, whether rounding noise may touch it; None: decided when asked."""
    sensitivity: list[Sensitivity] | None = field(default=None, repr=False)
    """By output leaf; None until a candidate was off."""
    looked_up: bool = False
    """A candidate was off, and what could be held against float64 has been since."""

    @property
    def backward(self) -> bool:
        """Gradients are compared, too."""
        return self.key.backward

    @property
    def inputs(self) -> list[torch.Tensor]:
        """The tensors of the call."""
        return [t for _, t in named_tensors((self.args, self.kwargs))]

    @property
    def num_bytes(self) -> int:
        """Inputs and outputs of one call."""
        return num_bytes([*self.inputs, *[e.same for e in self.expected]])

    @property
    def text(self) -> str:
        """Shapes for people: `native 64x1024`."""
        return f"{self.key.text} " + ", ".join("x".join(map(str, t.shape)) or "scalar" for t in self.inputs)

    @property
    def tolerance(self) -> float:
        """Largest admitted error of an element, relative to its scale."""
        return max((e.admitted.worst for e in self.expected), default=0.0)

    @property
    def separation(self) -> float:
        """How far a kernel in the next coarser format is out, at the output that tells best; above 1 it is caught."""
        return max((separation(e.admitted, e.own, e.lower) for e in self.expected), default=0.0)

    @property
    def draw(self) -> InputDraw:
        """The inputs, to be run again."""
        return InputDraw(self.args, self.kwargs, self.seed, self.key.weights, self.key.backward, self.loose, self.key.other_mode)


@dataclass(frozen=True)
class Comparison:
    """What became of one comparison."""

    text: str | None
    """Why it failed, for people; None when it did not."""
    errors: Errors = NONE
    """Of the output that is worst."""
    tolerance: float = 0.0
    """The largest error of an element that was admitted."""
    notes: tuple[str, ...] = ()
    """What callers may want to know though it agrees."""

    @property
    def ok(self) -> bool:
        """It agrees."""
        return self.text is None

    @property
    def worst(self) -> float:
        """The largest error of an element, relative to its scale; nan where it has no size."""
        return self.errors.worst

    @property
    def typical(self) -> float:
        """Root mean square of the elements' errors."""
        return self.errors.typical


def num_bytes(values: Sequence[Any]) -> int:
    """Of all tensors among `values`."""
    return sum(t.numel() * t.element_size() for t in values if isinstance(t, torch.Tensor))
