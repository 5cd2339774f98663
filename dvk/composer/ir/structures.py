"""Structures of tensors as JSON-able data: nested arguments and results of forward().

    ("ref")    {'ref': name}              a value of the graph
    ("value")  {'value': literal}         a plain value, encoded as operands are
    tuple, list, dict                     {'tuple'|'list': parts}, {'dict': pairs}
    ("named")  {'named': [type, parts]}   a type of torch.return_types
    ("global") {'global': [module, name]} a class or function by its import path; the module is '' for the user's own file
    ("made")   {'made': {...}}            any other object, as pickle reduces it: a call, then state, items and pairs
    shared, again                         {'shared': [number, tree]}, {'again': number}: one object in several places
    ("module") {'module': path}           a module that is passed to a call left to PyTorch

Nested arguments of forward() have three forms in addition to 'ref' and 'value', each with its class: 'items' (lists, tuples and named
ones), 'pairs' (dicts and their subclasses) and 'fields' (dataclasses).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

from dvk.composer.ir.errors import CannotCompose

MAX_DEPTH = 24

OPERATIONS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "floordiv": "{} // {}",
    "truediv": "{} / {}",
    "mod": "{} % {}",
    "pow": "{} ** {}",
    "neg": "-{}",
    "eq": "{} == {}",
    "ne": "{} != {}",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "and_": "{} & {}",
    "or_": "{} | {}",
    "not_": "not {}",
}
"""Python's operators on sizes that depend on values, as text."""


def literal_of(value: Any) -> Any:
    """Encode a plain value.

    Raises:
        CannotCompose: the value is not plain.
    """
    import torch

    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    if isinstance(value, torch.layout):
        return {"layout": str(value).removeprefix("torch.")}
    if type(value) is float and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": str(value)}
    if type(value) is complex:
        return {"complex": [str(value.real), str(value.imag)]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise CannotCompose(f"an operand of type {type(value).__name__}")


def namespace_of(model: Any) -> dict[str, Any]:
    """The globals of the file that defines a module's class, as far as the class reveals them."""
    module = sys.modules.get(type(model).__module__)
    return vars(module) if module is not None else getattr(type(model).forward, "__globals__", {})


def global_of(value: Any, home: dict[str, Any]) -> list[str]:
    """Name a class or function for generated text: `[module, qualified name]`, the module '' for the user's file.

    Raises:
        CannotCompose: no import path leads to it.
    """
    path = str(getattr(value, "__qualname__", ""))
    inside = home.get(path.partition(".")[0])
    if path and "<" not in path and _attribute(inside, path.partition(".")[2]) is value:
        return ["", path]
    for name, held in home.items():
        if held is value and name.isidentifier() and not name.startswith("__"):
            return ["", name]
    module = str(getattr(value, "__module__", None) or "builtins")
    if (
        path
        and "<" not in path
        and module in sys.modules
        and module != home.get("__name__")
        and not module.startswith("dvk_source_")
        and _attribute(sys.modules[module], path) is value
    ):
        return [module, path]
    raise CannotCompose(f"`{path or value}` has no name that a drop-in could import it by")


def _attribute(owner: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        owner = getattr(owner, part, None)
    return owner


# ---------------------------------------------------------------- what forward() returns


class StructureEncoder:
    """Encodes a result of forward().

    Args:
        leaf: the encoding of a tensor or of a symbolic number, None for anything else.
        home: globals of the user's file.
    """

    def __init__(self, leaf: Callable[[Any], Any], home: dict[str, Any]):
        self.leaf, self.home = leaf, home
        self.seen: dict[int, tuple[int, Any]] = {}
        """Identity of an object → its number, and the object, which must stay alive meanwhile."""
        self.again: set[int] = set()

    def encode(self, value: Any) -> Any:
        """Encode a value as a tree.

        Raises:
            CannotCompose: a drop-in could not rebuild some part.
        """
        return self._pruned(self._encode(value, 0))

    def _encode(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise CannotCompose(
                f"the output is nested too deeply, or holds itself, in a {type(value).__name__}"
            )
        result = self.leaf(value)
        if result is not None:
            return result
        try:
            return {"value": literal_of(value)}
        except CannotCompose:
            pass
        if isinstance(value, type) or (
            callable(value) and hasattr(value, "__qualname__") and not hasattr(value, "__self__")
        ):
            return {"global": global_of(value, self.home)}
        if type(value) is tuple:
            return {"tuple": [self._encode(v, depth + 1) for v in value]}
        if type(value).__module__ == "torch.return_types":
            return {"named": [type(value).__name__, [self._encode(v, depth + 1) for v in value]]}
        if id(value) in self.seen:
            self.again.add(self.seen[id(value)][0])
            return {"again": self.seen[id(value)][0]}
        number = len(self.seen)
        self.seen[id(value)] = number, value
        return {"shared": [number, self._object(value, depth)]}

    def _object(self, value: Any, depth: int) -> Any:
        def of(part: Any) -> Any:
            return self._encode(part, depth + 1)

        if type(value) is list:
            return {"list": [of(v) for v in value]}
        if type(value) is dict:
            if not all(type(k) in (str, int, bool, float) for k in value):
                raise CannotCompose(
                    "the output is a dict with keys that are neither strings nor numbers"
                )
            return {"dict": [[k, of(v)] for k, v in value.items()]}
        import torch

        if isinstance(value, torch.nn.Module):
            raise CannotCompose(f"the output holds a module, {type(value).__name__}")
        try:
            made = value.__reduce_ex__(2)
        except Exception as error:  # noqa: BLE001 - an object's own code
            raise CannotCompose(f"the output holds a {type(value).__name__}: {error}") from None
        if not isinstance(made, tuple):
            raise CannotCompose(f"the output holds a {type(value).__name__}")
        call, args, state, items, pairs = (*made, None, None, None)[:5]
        return {
            "made": {
                "call": of(call),
                "args": [of(a) for a in args],
                "state": None if state is None else of(state),
                "items": [of(v) for v in items or ()],
                "pairs": [[of(k), of(v)] for k, v in pairs or ()],
            }
        }

    def _pruned(self, tree: Any) -> Any:
        """Drop the numbers of objects that occur only once."""
        if isinstance(tree, dict):
            if set(tree) == {"shared"} and tree["shared"][0] not in self.again:
                return self._pruned(tree["shared"][1])
            return {k: self._pruned(v) for k, v in tree.items()}
        return [self._pruned(v) for v in tree] if isinstance(tree, list) else tree


def is_made(tree: Any) -> bool:
    """Rebuilding it takes more than Python's own literals."""
    if isinstance(tree, dict):
        return bool(tree.keys() & {"made", "global", "shared", "again"}) or any(
            map(is_made, tree.values())
        )
    return isinstance(tree, list) and any(map(is_made, tree))


def refs(tree: Any) -> list[str]:
    """The values of the graph in a tree, in order, each once."""
    result: dict[str, None] = {}

    def walk(part: Any) -> None:
        if isinstance(part, dict) and set(part) == {"ref"}:
            result[part["ref"]] = None
        elif isinstance(part, (dict, list, tuple)):
            for inner in part.values() if isinstance(part, dict) else part:
                walk(inner)

    walk(tree)
    return list(result)


def flat(tree: Any) -> Any:
    """A tree as programs return it that rebuild nothing: the tuple of its tensors if it `is_made`, else itself."""
    return {"tuple": [{"ref": name} for name in refs(tree)]} if is_made(tree) else tree


def named(path: list[str]) -> str:
    """The text of a class or function."""
    module, name = path
    if not module or module == "builtins":
        return name
    return f"dvk_named({module!r}, {name!r})"


def expression(tree: Any, value: Callable[[str], str], literal: Callable[[Any], str]) -> str:
    """The text that rebuilds a tree.

    Args:
        value: renders a value of the graph.
        literal: renders an encoded literal.
    """

    def of(part: Any) -> str:
        return expression(part, value, literal)

    def several(parts: Any) -> str:
        return ", ".join(map(of, parts))

    ((key, inner),) = tree.items()
    if key == "ref":
        return value(inner)
    if key == "module":
        return f"self.get_submodule({inner!r})" if inner else "self"
    if key == "tuple":
        return f"({several(inner)}{',' if len(inner) == 1 else ''})"
    if key == "named":
        return f"torch.return_types.{inner[0]}(({several(inner[1])}))"
    if key == "list":
        return f"[{several(inner)}]"
    if key == "dict":
        return "{" + ", ".join(f"{k!r}: {of(v)}" for k, v in inner) + "}"
    if key == "global":
        return named(inner)
    if key == "shared":
        return f"(_dvk_o{inner[0]} := {of(inner[1])})"
    if key == "again":
        return f"_dvk_o{inner}"
    if key == "made":
        call, args = of(inner["call"]), several(inner["args"])
        if inner["state"] is None and not inner["items"] and not inner["pairs"]:
            return f"{call}({args})"
        pairs = ", ".join(f"({of(k)}, {of(v)})" for k, v in inner["pairs"])
        state = "None" if inner["state"] is None else of(inner["state"])
        return f"dvk_made({call}({args}), {state}, [{several(inner['items'])}], [{pairs}])"
    return literal(inner)


# ---------------------------------------------------------------- what forward() takes


def taken(value: Any, path: str, home: dict[str, Any]) -> tuple[Any, list[tuple[str, Any]]]:
    """Encode an argument as a tree, with its tensors by path.

    Raises:
        CannotCompose: a drop-in could not compare some part with a caller's argument.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return {"ref": path}, [(path, value)]
    try:
        return {"value": literal_of(value)}, []
    except CannotCompose:
        pass
    leaves: list[tuple[str, Any]] = []

    def part(key: Any, inner: Any) -> Any:
        tree, more = taken(inner, f"{path}.{key}", home)
        leaves.extend(more)
        return tree

    kind = type(value)
    if isinstance(value, (list, tuple)):
        return {"items": [global_of(kind, home), [part(n, v) for n, v in enumerate(value)]]}, leaves
    if isinstance(value, dict) and all(type(k) in (str, int) for k in value):
        return {
            "pairs": [global_of(kind, home), [[k, part(k, v)] for k, v in value.items()]]
        }, leaves
    if dataclasses.is_dataclass(value):
        fields = [[f.name, part(f.name, getattr(value, f.name))] for f in dataclasses.fields(value)]
        return {"fields": [global_of(kind, home), fields]}, leaves
    raise CannotCompose(
        f"the input `{path}` is a {kind.__name__}: neither tensors in a structure nor a plain value"
    )


def filled(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A new structure like `value` with `leaf` of every tensor."""
    import copy

    import torch

    made: Any
    if isinstance(value, torch.Tensor):
        return leaf(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        parts = [filled(v, leaf) for v in value]
        if type(value) in (list, tuple):
            return type(value)(parts)
        if isinstance(value, tuple):
            return (
                type(value)(parts)
                if type(value).__module__ == "torch.return_types"
                else tuple.__new__(type(value), parts)
            )
        made = copy.copy(value)
        made[:] = parts
        return made
    if isinstance(value, dict):
        made = copy.copy(value)
        for key in list(value):
            made[key] = filled(value[key], leaf)
        return made
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(made, field.name, filled(getattr(value, field.name), leaf))
        return made
    return value


def conditions(
    tree: Any, text: str, tensor: Callable[[str, str], str], literal: Callable[[Any], str]
) -> Iterator[str]:
    """Conditions, as text, under which the object named by `text` matches a tree of `taken`, outermost first.

    Args:
        tensor: path of a tensor and its text → the text of its condition.
        literal: renders an encoded literal.
    """
    ((key, inner),) = tree.items()
    if key == "ref":
        yield tensor(inner, text)
    elif key == "value":
        if inner is None:
            yield f"{text} is None"
        else:
            same = (
                f"{text} != {text}" if inner == {"float": "nan"} else f"{text} == {literal(inner)}"
            )
            yield f"type({text}) is type({literal(inner)}) and {same}"
    else:
        kind, parts = inner
        yield f"type({text}) is {named(kind)}"
        if key == "items":
            yield f"len({text}) == {len(parts)}"
        elif key == "pairs":
            yield f"list({text}) == {[k for k, _ in parts]!r}"
        for number, part in enumerate(parts):
            inside, below = (
                (f"{text}[{number}]", part)
                if key == "items"
                else (f"{text}[{part[0]!r}]" if key == "pairs" else f"{text}.{part[0]}", part[1])
            )
            yield from conditions(below, inside, tensor, literal)


def places(tree: Any, text: str) -> Iterator[tuple[str, str]]:
    """The path of every tensor in a tree of `taken`, with the text that reads it from the object named by `text`."""
    paths: dict[str, str] = {}
    list(conditions(tree, text, lambda path, where: paths.setdefault(path, where), repr))
    yield from paths.items()


def resolved(path: list[str], home: dict[str, Any] | None = None) -> Any:
    """Resolve an import path."""
    module, name = path
    first, _, rest = name.partition(".")
    return (
        _attribute((home or {}).get(first), rest)
        if not module
        else _attribute(sys.modules.get(module), name)
    )
