"""The result of capturing a module."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from dvk.records import Graph

SAVED, TANGENT = "saved", "tangent"
"""Prefixes of the arguments of a backward program."""


class Training(BaseModel):
    """The two programs of a training step."""

    model_config = ConfigDict(frozen=True)

    forward: Graph
    """Returns two tuples: the results, flat, and what is saved for the backward."""
    backward: Graph
    """Reads what is saved, then a cotangent for each result that has a gradient; returns a gradient for each input and weight below."""
    inputs: tuple[str, ...]
    """Inputs with a gradient, by path."""
    weights: tuple[str, ...]
    """Weights with a gradient, by path."""
    frozen: tuple[str, ...]
    """Weights and buffers that the graph reads and that have none."""
    pulled: tuple[Literal[True] | tuple[int, ...], ...]
    """For each result, the inputs and weights above, by position, that it has a gradient of; True: all."""
    random: bool
    """The forward draws random numbers."""


class CapturedGraph(BaseModel):
    """A graph and the facts a drop-in needs to replace the module."""

    model_config = ConfigDict(frozen=True)

    graph: Graph
    training: Training | None = None
    """The graph's training step, of a training task."""
    arguments: tuple[str, ...]
    """Forward parameters in call order."""
    by_name: int = 0
    """Number of parameters, at the end, that are passed by keyword."""
    constants: dict[str, Any] = {}
    """Arguments that are plain values, constants of the graph."""
    left: tuple[str, ...] = ()
    """Paths of submodules that are left to PyTorch; the graph does not depend on their hooks and attributes."""
    parts: dict[str, str] = {}
    """Functions made of statements that are left to PyTorch: name → text that is placed below the user's file."""
    free: tuple[str, ...] = ()
    """Attributes that these functions change, by path and name: the graph does not depend on them."""
    structure: dict[str, Any] = {}
    """Other arguments that are not tensors, as trees (`structures`) of the graph's inputs."""
    facts: dict[str, dict[str, str]] = {}
    """What forward reads of the modules, modes included: path → attribute → value as text (`runtime.facts`)."""
    asked: tuple[str, ...] = ()
    """Functions of torch (`observe.MODES`) whose answer, False, the graph may depend on."""
    autocast: tuple[str, ...] = ()
    """Types with which a call under torch.autocast computes the same."""
    under: str | None = None
    """Type of the torch.autocast that it was captured under; the graph casts operands itself, and holds for such calls alone."""
    modes: dict[str, bool] = {}
    """Modes that the graph may depend on, by the path of the module whose mode forward reads (`reads`)."""
    depending: tuple[str, ...] = ()
    """For reports: modules captured in train mode that may compute something else in eval mode."""
    blocks: dict[str, str] = {}
    """Block of the network (`blocks.block_of`) by operator SSA name; operators of the model itself are absent."""
