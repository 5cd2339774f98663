"""One input set with the reference's results, and the result of a comparison with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dvk.harness.checking.case_keys import InputSetKey
from dvk.harness.checking.compare import ExpectedLeaf
from dvk.harness.checking.reference_runs import Answer, InputDraw
from dvk.harness.checking.sensitivity import Sensitivity
from dvk.harness.checking.tolerance import NONE, Errors, separation
from dvk.harness.transport.calls import Buffers
from dvk.tasks.trees import named_tensors


@dataclass
class Case:
    """One input set. The judge owns its tensors: lend copies."""

    key: InputSetKey
    """Key with the weight set in use, which is 0 if the requested one does not suit the reference."""
    seed: int
    """Seed of all random generators during the call; differs from that of the inputs."""
    args: list[Any]
    kwargs: dict[str, Any]
    expected: list[ExpectedLeaf]
    spec_text: str
    buffers: Buffers
    """The module's buffers after the call."""
    loose: list[bool] | None = None
    """For each input tensor, whether rounding noise may touch it; None: decided when needed."""
    sensitivity: list[Sensitivity] | None = field(default=None, repr=False)
    """Sensitivity by output leaf; None until a candidate was off."""
    along: list[torch.Tensor] | None = None
    """Cotangents of the outputs that are lent after the inputs, of a training task."""
    looked_up: bool = False
    """Whether a candidate was off, so that the leaves have been calibrated against float64 if possible."""

    @classmethod
    def of(
        cls, key: InputSetKey, draw: InputDraw, answer: Answer, expected: list[ExpectedLeaf]
    ) -> Case:
        """Return the case of a draw and the reference's answer to it."""
        return cls(
            key,
            draw.seed,
            draw.args,
            draw.kwargs,
            expected,
            answer.spec_text,
            answer.buffers,
            draw.loose,
            along=draw.along,
        )

    @property
    def backward(self) -> bool:
        """Whether gradients are compared, too."""
        return self.key.backward

    @property
    def inputs(self) -> list[torch.Tensor]:
        """Return the tensors of the call, cotangents last."""
        return [*self.arguments, *(self.along or ())]

    @property
    def arguments(self) -> list[torch.Tensor]:
        """Return the tensors that forward takes."""
        return [t for _, t in named_tensors((self.args, self.kwargs))]

    @property
    def num_bytes(self) -> int:
        """Return the bytes of inputs and outputs of one call."""
        return num_bytes([*self.inputs, *[e.same for e in self.expected]])

    @property
    def text(self) -> str:
        """Return shapes for people: `native 64x1024`."""
        return f"{self.key.text} " + ", ".join(
            "x".join(map(str, t.shape)) or "scalar" for t in self.arguments
        )

    @property
    def tolerance(self) -> float:
        """Return the largest admitted error of an element, relative to its scale."""
        return max((e.admitted.worst for e in self.expected), default=0.0)

    @property
    def separation(self) -> float:
        """Return the error of a kernel in the next coarser format over the admitted error, at the most telling output; above 1 it is
        caught."""
        return max((separation(e.admitted, e.own, e.lower) for e in self.expected), default=0.0)

    @property
    def draw(self) -> InputDraw:
        """Return the inputs for another run."""
        return InputDraw(
            self.args,
            self.kwargs,
            self.seed,
            self.key.weights,
            self.key.backward,
            self.loose,
            self.key.other_mode,
            self.along,
        )


@dataclass(frozen=True)
class Comparison:
    """Result of one comparison."""

    text: str | None
    """The error for people; None if the comparison passed."""
    errors: Errors = NONE
    """Errors of the worst output."""
    tolerance: float = 0.0
    """The largest admitted error of an element."""
    notes: tuple[str, ...] = ()
    """Notes for callers, although it agrees."""

    @property
    def ok(self) -> bool:
        """Whether it agrees."""
        return self.text is None

    @property
    def worst(self) -> float:
        """Return the largest error of an element, relative to its scale; nan if it has no size."""
        return self.errors.worst

    @property
    def typical(self) -> float:
        """Return the root mean square of the elements' errors."""
        return self.errors.typical


def num_bytes(values: Sequence[Any]) -> int:
    """Return the bytes of all tensors among `values`."""
    return sum(t.numel() * t.element_size() for t in values if isinstance(t, torch.Tensor))
