"""What capturing a module gives."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from dvk.records import Graph


class CapturedGraph(BaseModel):
    """A graph and what a drop-in needs to know to stand in for the module."""

    model_config = ConfigDict(frozen=True)

    graph: Graph
    arguments: tuple[str, ...]
    """Forward parameters in call order."""
    by_name: int = 0
    """How many of them, the last ones, are passed by keyword."""
    constants: dict[str, Any] = {}
    """Arguments that are plain values, baked into the graph."""
    left: tuple[str, ...] = ()
    """Submodules that are left to PyTorch, by path; hooks and attributes in them are no affair of the graph's."""
    parts: dict[str, str] = {}
    """Functions made of statements that are left to PyTorch, by name, as text that stands below the user's file."""
    free: tuple[str, ...] = ()
    """Attributes that these change, by path and name: the graph does not rest on them."""
    structure: dict[str, Any] = {}
    """Other arguments that are no tensors, as trees (`structures`) of the graph's inputs."""
    config_hash: str
    """What `guards.dvk_config` says of the captured module."""
    asked: tuple[str, ...] = ()
    """Functions of torch (`observe.MODES`) on whose answer, False, the graph may rest."""
    modes: dict[str, bool] = {}
    """Modes on which the graph may rest, by the path of the module that forward asks for it (`modes.reading`)."""
    depending: tuple[str, ...] = ()
    """For people: what was in train mode and may compute something else in eval mode."""
    blocks: dict[str, str] = {}
    """The block of the network (`blocks.block_of`) by operator, by SSA name; not of operators that are the model's own."""
