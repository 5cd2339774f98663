"""The text of a call of a library, as the plan's recipes have it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from dvk.composer.ir.text import literal, spelled
from dvk.composer.rewrites import cudnn, packed_weights
from dvk.records import Node


def text(
    node: Node,
    called: Collection[str],
    packed: packed_weights.Call | None,
    name: Callable[[str], str],
    made_once: Callable[[str, Sequence[Any]], str],
) -> str:
    """The call of an operator of PyTorch.

    Args:
        called: the plan's recipes.
        packed: the call with a packed weight, if it has one.
        name: gives the name of a value.
        made_once: gives the text of what a function makes of operands once, until a weight changes.
    """
    one = partial(literal, name=name)
    if packed is not None:
        weight = made_once(packed.make, [packed.weight])
        given = [one(packed.x), weight, one(packed.bias), *packed.numbers]
        return f"{packed.function}({', '.join(given)})"
    found = cudnn.measured(node, one) if cudnn.RECIPE in called else None
    return found or spelled(node, name)
