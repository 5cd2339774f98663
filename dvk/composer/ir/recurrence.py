"""One layer of a recurrent network over a whole sequence: the computation of its kernel, and the layout of its operands.

One linear before the kernel multiplies the inputs of all steps; the kernel multiplies the state and computes the gates, step by step.
Directions are computed in parallel. For one direction, with a the linear of x at step t and m = h·Wᵀ + b:

    rnn_tanh, rnn_relu   h ← tanh(a + m), relu(a + m)
    gru    r, z = σ(a + m) of their gates, n = tanh(a + r·m) of the third;  h ← (h − n)·z + n
    lstm   i, f, g, o = σ, σ, tanh, σ of (a + m) of their gates;  c ← f·c + i·g, h ← o·tanh(c)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dvk.composer.ir.nodes import BYTES

RECURRENT = "recurrent"
"""The operator of a layer's node: operands as in `Recurrence`, its fields as keyword arguments, its results as a tuple."""
GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}
"""Operator → gates."""
LINE = 64
"""Bytes of a block of units, whose weights are contiguous: a cache line, and the widest vector."""


@dataclass(frozen=True)
class Recurrence:
    """The kernel's sizes.

    Operands: a [steps, batch, directions·gates·hidden], or batch first; states h and, for an LSTM, c [directions, batch, hidden]; weights w
    [directions, blocks, hidden, gates, lanes]; if biased, b [directions, blocks, gates, lanes]. Results: y [steps, batch,
    directions·hidden] and the last states. All are contiguous.
    """

    mode: str
    dtype: str
    steps: int
    batch: int
    hidden: int
    directions: int
    biased: bool
    batch_first: bool
    """Layout of `a` alone."""

    @property
    def gates(self) -> int:
        return GATES[self.mode]

    @property
    def lanes(self) -> int:
        """Units of a block."""
        return LINE // BYTES[self.dtype]

    @property
    def blocks(self) -> int:
        return -(-self.hidden // self.lanes)

    @property
    def read(self) -> tuple[str, ...]:
        """Operands by name, in the order of the function's parameters."""
        return (
            "a",
            "h0",
            *(["c0"] if self.mode == "lstm" else []),
            "w",
            *(["b"] if self.biased else []),
        )

    @property
    def written(self) -> tuple[str, ...]:
        """Results by name, after the operands."""
        return ("y", "h1", *(["c1"] if self.mode == "lstm" else []))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an operand or result."""
        blocks, wide = (self.directions, self.blocks), self.directions * self.hidden
        lead = (self.batch, self.steps) if self.batch_first else (self.steps, self.batch)
        shapes = {
            "a": (*lead, self.gates * wide),
            "y": (self.steps, self.batch, wide),
            "w": (*blocks, self.hidden, self.gates, self.lanes),
            "b": (*blocks, self.gates, self.lanes),
        }
        return shapes.get(name, (self.directions, self.batch, self.hidden))

    @property
    def num_bytes(self) -> int:
        """Bytes read once and written once."""
        return (
            sum(math.prod(self.shape(name)) for name in (*self.read, *self.written))
            * BYTES[self.dtype]
        )

    @property
    def summary(self) -> str:
        """One line for people."""
        return f"{self.mode}: {self.steps} steps of {self.batch} × {self.hidden}" + (
            " both ways" if self.directions == 2 else ""
        )
