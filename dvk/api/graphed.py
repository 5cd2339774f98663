"""Source text of a module without known source: the ATen operators that torch.export records of a call, one per line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from dvk.api.source import NoSource, Text
from dvk.errors import TaskError

PLAIN = (tuple, list, dict, type(None))
HINT = "put its class into a file that can be imported, and keep what it holds picklable"


class _Name:
    """A variable in the structure of the result."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name


class _Called(nn.Module):
    """Wraps a function as a module."""

    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def graphed(
    subject: Any,
    names: Sequence[str],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    text: Text,
    why: str,
) -> tuple[str, nn.Module]:
    """Return the `forward` method, indented, and a module with the tensors that it reads.

    Args:
        subject: a module or a callable.
        names: parameters that positional inputs go to.
        inputs: example arguments.
        kwargs: example keyword arguments.
        text: what the method's globals are bound in.
        why: there is no source.

    Raises:
        TaskError: torch.export cannot capture the call, or the graph holds what no text can say.
    """
    name = (
        type(subject).__name__
        if isinstance(subject, nn.Module)
        else getattr(subject, "__name__", "function")
    )
    problem = f"`{name}` cannot be handed to another process: {why}; and "
    module = subject if isinstance(subject, nn.Module) else _Called(subject)
    try:
        with torch.no_grad():
            graph = torch.export.export(module, tuple(inputs), dict(kwargs), strict=False).module(
                check_guards=False
            )
    except Exception as error:  # noqa: BLE001 - export runs the user's code, which may raise anything
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise TaskError(f"{problem}torch.export cannot capture it: {said[0][:300]}", HINT) from None
    written = graph.graph.python_code("self")
    body, returned = [], None
    for line in _body(written.src):
        if "fx_pytree.tree_flatten_spec(" in line:
            call = f"(({''.join(f'{one}, ' for one in names)}), {{{', '.join(f'{key!r}: {key}' for key in kwargs)}}})"
            body.append(f"{line.partition('=')[0]}= torch.utils._pytree.tree_leaves({call})")
        elif line.startswith("return "):
            returned = line
        else:
            body.append(line)
    output = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    leaves = [_Name(str(one)) if isinstance(one, torch.fx.Node) else one for one in output]
    result = pytree.tree_unflatten(leaves, graph._out_spec)  # type: ignore[arg-type]  # exported graphs have one
    if returned is None or not _plain(result):
        raise TaskError(
            f"{problem}its result is a {type(result).__name__}",
            "have it return tensors in a tuple, list or dict",
        )
    try:
        words = set(re.findall(r"\w+", " ".join(body)))
        for key, value in written.globals.items():
            if key in words:
                text.bind(key, value)
        held = _held(graph)
    except NoSource as error:
        raise TaskError(f"{problem}{error}", HINT) from None
    signature = ", ".join(["self", *names, *(["*"] if kwargs else []), *kwargs])
    lines = [
        f"    def forward({signature}):",
        *(f"        {line}" for line in body),
        f"        return {result!r}",
    ]
    return "\n".join(lines), held


def _body(source: str) -> list[str]:
    lines = source.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("def "))
    return [line.strip() for line in lines[start + 1 :] if line.strip()]


def _plain(value: Any) -> bool:
    if type(value) not in PLAIN:
        return isinstance(value, (_Name, bool, int, float, str))
    parts = value.values() if isinstance(value, dict) else value or ()
    return all(_plain(one) for one in parts)


def _held(graph: torch.fx.GraphModule) -> nn.Module:
    """Return a tree of plain modules with the tensors that the graph reads, under their names.

    Raises:
        NoSource: it reads something else, such as the body of a branch.
    """
    root = nn.Module()
    root.train(graph.training)
    for node in graph.graph.nodes:
        if node.op == "call_module":
            raise NoSource("it calls a part that is no graph")
        if node.op != "get_attr":
            continue
        *path, leaf = str(node.target).split(".")
        owner, theirs = root, graph
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner, theirs = owner._modules[part], getattr(theirs, part)  # type: ignore[assignment]
        value = getattr(theirs, leaf)
        if not isinstance(value, torch.Tensor):
            raise NoSource(f"its graph holds a {type(value).__name__}")
        if leaf in theirs._buffers:
            owner.register_buffer(
                leaf, value, persistent=leaf not in theirs._non_persistent_buffers_set
            )
        elif isinstance(value, nn.Parameter):
            owner.register_parameter(leaf, value)
        else:
            setattr(owner, leaf, value)
    return root
