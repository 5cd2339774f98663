"""One named move of a plan, and the shorthands that make most of them (`recipes` is the table)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dvk.composer.occasion import Occasion
from dvk.records import Graph

Rewrite = Callable[[Graph, str], "Graph | None"]
"""The graph after a move on a device, or None if it does not apply."""


def same_everywhere(rewrite: Callable[[Graph], Graph | None]) -> Rewrite:
    """A move that is the same on every device."""
    return lambda graph, device: rewrite(graph)


@dataclass(frozen=True)
class Recipe:
    """One named move."""

    name: str
    condition: str
    """Conditions under which it is exact and applies, in words."""
    rewrite: Rewrite | None = None
    """The graph after the move, or None if it does not apply."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    exact: bool = True
    """Exact for every input; otherwise for finite values alone, and off by default."""
    kind: str = "graph"
    """`graph` (rewrites), `fusion`, `host` or `schedule`."""
    needs: Callable[[Occasion], bool] = Occasion.is_fused
    """Where a recipe without rewrite would change something."""
    decomposes: bool = False
    """It decomposes operators, so that other recipes apply to the parts."""
    after: tuple[str, ...] = ()
    """Recipes that may make what it applies to."""

    def applies(self, occasion: Occasion) -> bool:
        """It would change something; a rewrite is checked by trying it."""
        if self.rewrite is None:
            return self.needs(occasion)
        graph = occasion.original if self.decomposes else occasion.graph
        return self.rewrite(graph, occasion.device) is not None


def family(
    name: str, condition: str, exact: bool = True, devices: tuple[str, ...] = ("cpu", "cuda")
) -> Recipe:
    """A kernel family in place of calls that torch computes well itself."""
    return Recipe(
        name,
        condition,
        devices=devices,
        exact=exact,
        kind="fusion",
        needs=lambda occasion: name in occasion.owned,
    )
