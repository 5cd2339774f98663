"""Steps of a program other than ATen operators, as Python lines: calls left to PyTorch, checks of values, sizes.

A program that finds a call or a value different from its capture returns `dvk_else`: the original runs instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dvk.composer.ir import structures
from dvk.records import Node

CHUNKED_LOSS = "dvk.chunked_loss.default"
"""A function of drop-ins (`runtime.chunked_loss`), an operator while a training step is traced."""
GO_BACK = "return dvk_else"


def left_place(node: Node) -> dict[str, tuple[str, str]]:
    """Key, path and method of a member of the module; empty for a function."""
    module, path, name = node.kwargs["place"]
    return {} if module is not None else {f"{path}.{name}" if name else path: (path, name)}


def left_lines(
    node: Node, result: str, value: Callable[[str], str], literal: Callable[[Any], str]
) -> list[str]:
    """Lines that make the call and unpack its tensors into a tuple, `result`.

    Args:
        value: renders a value of the graph.
        literal: renders an encoded literal.
    """

    def text(tree: Any) -> str:
        return structures.expression(tree, value, literal)

    module, _, name = node.kwargs["place"]
    (key,) = left_place(node) or (None,)
    callee = f"self._dvk_left[{key!r}]" if module is None else structures.named([module, name])
    args, kwargs = node.kwargs["given"]["tuple"]
    given = [*map(text, args["tuple"]), *(f"**{{{k!r}: {text(v)}}}" for k, v in kwargs["dict"])]
    expected = json.loads(node.kwargs["result"])
    places: list[str] = []

    def tensor(path: str, where: str) -> str:
        shape, strides, dtype = expected["shapes"][path]
        places.append(where)
        return (
            f"type({where}) in dvk_tensors and {where}.shape == {tuple(shape)!r} and {where}.dtype is torch.{dtype}"
            f" and {where}.layout is torch.strided"
        )

    conditions = " and ".join(structures.conditions(expected["tree"], result, tensor, literal))
    unpacked = "".join(f"{place}, " for place in places)
    return [
        f"{result} = {callee}({', '.join(given)})",
        f"if not ({conditions}):",
        f"    {GO_BACK}",
        f"{result} = ({unpacked})",
    ]


def expect_lines(node: Node, result: str, literal: Callable[[Any], str]) -> list[str]:
    """Lines that fall back if a value differs from its capture; `result` becomes the answer."""
    value, answer = map(literal, node.args)
    return [f"{result} = bool({value})", f"if {result} is not {answer}:", f"    {GO_BACK}"]


def spelled(op: str, args: list[str]) -> str:
    """The text of an operator outside ATen."""
    if op == "generator":
        seed, device = (part.partition("=")[2] for part in args)
        return f"torch.Generator({device}).manual_seed({seed})"
    kind, _, name = op.partition(".")
    if op == CHUNKED_LOSS:
        return f"dvk_chunked_loss({', '.join(args)})"
    return (
        f"({structures.OPERATIONS[name].format(*args)})"
        if kind == "python"
        else f"torch.ops.{op}({', '.join(args)})"
    )
