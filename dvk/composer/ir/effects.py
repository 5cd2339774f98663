"""Writes and memory sharing of operators, by their schemas.

PyTorch declares both: `add_.Tensor(Tensor(a!) self, ...) -> Tensor(a!)` writes its first operand and returns it, `slice.Tensor(Tensor(a)
self, ...) -> Tensor(a)` returns a view. The declarations come from the file that torch is built from and ships: this module loads no torch.
`UNDECLARED` holds the facts that they omit (a test compares it with PyTorch's operator samples).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dvk import aten
from dvk.records import Graph, Node

UNDECLARED = aten.having("may_alias") | {"align_tensors"}
"""Operators without a declared alias whose result may be an operand, or a view of one."""
OURS = frozenset({"getitem", "restrided"})
"""Operators outside PyTorch without a declared alias whose result may be an operand, or a view of one."""
METADATA = frozenset({"detach_"})
"""Declared as writing, but no value changes."""
REBINDING = frozenset({"set_", "resize_", "resize_as_", "resize_as_sparse_", "swap_", "set_data"})
"""Operators that give a tensor other memory: it no longer shares memory with its former aliases."""

_DECLARED = re.compile(r"^- func: (?:aten::)?(\S+?)(\(.*)$", re.MULTILINE)
_DERIVED = re.compile(
    r"^- func: (\w+)_((?:\.\w+)?)(\(.*)\n(?:  .*\n)*?  autogen: (?:.*, )?\1\2(?:,|$)", re.MULTILINE
)
"""In-place operators from which PyTorch derives one without writes."""
_SEEDED = re.compile(
    r"^- func: (\w+)[^\n]*\n(?:  .*\n)*?  tags: .*nondeterministic_seeded", re.MULTILINE
)
_ALIAS = re.compile(r"\(([a-z]+(?:\|[a-z]+)*)(!)?(?: -> [*a-z|]+)?\)")


@dataclass(frozen=True)
class Argument:
    """One operand of a schema."""

    name: str
    kind: str
    """Its type without aliases, as in `Tensor[]`."""
    default: str | None
    aliases: frozenset[str]
    written: bool
    by_name: bool
    """The operand is keyword-only."""

    @property
    def plain(self) -> tuple[str, str, str | None]:
        """The part that another schema must share to be called the same way."""
        return self.name, self.kind, self.default


@dataclass(frozen=True)
class Schema:
    """The declaration of an operator."""

    arguments: tuple[Argument, ...]
    returned: frozenset[str]
    """Alias sets of the results."""
    results: tuple[str, ...]
    """Types of the results, without aliases."""

    def operands(self, node: Node) -> Iterator[tuple[Argument, Any]]:
        """Each declared operand that the call passes, with its value."""
        positional = [a for a in self.arguments if not a.by_name]
        yield from zip(positional, node.args, strict=False)
        for argument in self.arguments:
            if argument.name in node.kwargs:
                yield argument, node.kwargs[argument.name]


@cache
def _file() -> str | None:
    """The file of declarations; None if torch does not ship it."""
    spec = find_spec("torchgen")
    path = (
        Path(spec.origin).parent / "packaged/ATen/native/native_functions.yaml"
        if spec and spec.origin
        else None
    )
    return path.read_text(encoding="utf-8") if path is not None and path.is_file() else None


@cache
def _texts() -> dict[str, str]:
    """Operator with its overload → the rest of its declaration."""
    if (text := _file()) is not None:
        derived = {
            packet + overload: _ALIAS.sub("", rest)
            for packet, overload, rest in _DERIVED.findall(text)
        }
        return derived | dict(_DECLARED.findall(text))
    import torch

    return dict(
        _DECLARED.findall(
            "\n".join(f"- func: {schema}" for schema in torch._C._jit_get_all_schemas())
        )
    )


@cache
def _seeded() -> frozenset[str]:
    """Operators that may draw random numbers, by PyTorch's tags, without the underscore of in-place variants."""
    if (text := _file()) is not None:
        return frozenset(name.removesuffix("_") for name in _SEEDED.findall(text))
    import torch

    result = set()
    for declared in torch._C._jit_get_all_schemas():
        packet = getattr(torch.ops.aten, declared.name.removeprefix("aten::"), None)
        operator = getattr(packet, declared.overload_name or "default", None)
        if torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ()):
            result.add(declared.name.removeprefix("aten::").removesuffix("_"))
    return frozenset(result)


def checks(node: Node) -> bool:
    """The operator has no result: it is called to raise, like an assertion."""
    declared = schema(node.op)
    return declared is not None and not declared.results


def draws(node: Node) -> bool:
    """The operator draws random numbers: it may draw, its arguments do not turn training off, and no probability is 0."""
    if packet_of(node.op).removesuffix("_") not in _seeded():
        return False
    declared = schema(node.op)
    given = (
        {argument.name: value for argument, value in declared.operands(node)} if declared else {}
    )
    defaults = (
        {argument.name: argument.default for argument in declared.arguments} if declared else {}
    )
    trains = next(
        (
            given.get(name, defaults[name] != "False")
            for name in ("train", "training")
            if name in defaults
        ),
        True,
    )
    chance = next(
        (given.get(name, 0.0) for name in ("dropout_p", "dropout") if name in defaults), None
    )
    if (
        chance is None and packet_of(node.op) in UNDECLARED
    ):  # dropout, which with probability 0 returns its operand
        chance = given.get("p")
    return trains is not False and chance != 0


def overloads(packet: str) -> list[str]:
    """The operators `aten.add_.Tensor`, … of a name, as it is or with an overload's after it."""
    names = [name for name in _texts() if name.partition(".")[0] == packet]
    return [f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names]


@cache
def schema(op: str) -> Schema | None:
    """The declaration of `aten.add_.Tensor`; None if there is none."""
    if not op.startswith("aten."):
        return None
    packet, _, overload = op.removeprefix("aten.").partition(".")
    text = _texts().get(packet if overload in ("", "default") else f"{packet}.{overload}")
    if text is None:
        return None
    taken, _, given = text.rpartition(" -> ")
    arguments: list[Argument] = []
    by_name = False
    for part in _parts(taken[1:-1]):
        if part == "*":
            by_name = True
            continue
        declared, _, default = part.partition("=")
        kind, _, name = declared.rpartition(" ")
        match = _ALIAS.search(kind)
        aliases = frozenset(match[1].split("|")) if match else frozenset()
        arguments.append(
            Argument(
                name,
                _ALIAS.sub("", kind),
                default or None,
                aliases,
                bool(match and match[2]),
                by_name,
            )
        )
    returned = frozenset(
        letter for names, _ in _ALIAS.findall(given) for letter in names.split("|")
    )
    results = tuple(part.split(" ")[0] for part in _parts(_ALIAS.sub("", given).strip("()")))
    return Schema(tuple(arguments), returned, results)


def _parts(text: str) -> list[str]:
    """The text split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [part for part in (*parts, text[start:].strip()) if part]


def twin(op: str) -> str | None:
    """The operator that computes what `op` writes into its one written operand, without writing; None if there is none.

    `aten.add.Tensor` for `aten.add_.Tensor` and for `aten.add.out`: the same operands except `out`, with the same types and defaults.
    """
    declared = schema(op)
    changed = [a for a in declared.arguments if a.written] if declared else []
    if declared is None or len(changed) != 1 or changed[0].kind != "Tensor":
        return None
    packet = op.split(".")[1]
    packet = packet if changed[0].by_name else packet.removesuffix("_")
    wanted = [a.plain for a in declared.arguments if not (a.written and a.by_name)]
    for name in _overloads(packet):
        other = schema(name)
        if (
            other is not None
            and other.results == ("Tensor",)
            and [a.plain for a in other.arguments] == wanted
            and not any(a.written for a in other.arguments)
        ):
            return name
    return None


@cache
def _overloads(packet: str) -> tuple[str, ...]:
    return tuple(
        f"aten.{name}" if "." in name else f"aten.{name}.default"
        for name in _texts()
        if name.partition(".")[0] == packet
    )


def packet_of(op: str) -> str:
    """`add` for `aten.add.Tensor`; the name itself if it is not an ATen operator."""
    return op.split(".")[1] if op.startswith("aten.") else op


def is_view(node: Node) -> bool:
    """The result may share memory with an operand that the operator does not write."""
    name, declared = packet_of(node.op), schema(node.op)
    if _is_product(node):
        return False
    if name in UNDECLARED or name in METADATA or node.op == "getitem":
        return True
    return declared is not None and any(
        a.aliases & declared.returned and not a.written for a in declared.arguments
    )


def shared(node: Node) -> list[str]:
    """Values that the result may share memory with: the bases of views, and operands written and returned."""
    declared = schema(node.op)
    if node.op == "left":  # it may return its argument
        return refs(list(node.args))
    if _is_product(node):
        return []
    if node.op in ("param", "buffer", "const") or packet_of(node.op) in UNDECLARED | OURS:
        return refs([list(node.args), node.kwargs])
    if declared is None:
        return _foreign(node)
    result = [
        value for argument, value in declared.operands(node) if argument.aliases & declared.returned
    ]
    if packet_of(node.op) in REBINDING:
        result = [value for argument, value in declared.operands(node) if argument.kind == "Tensor"]
    return refs(result)


def _is_product(node: Node) -> bool:
    """An einsum of several operands: it computes products, while that of one may be a view."""
    return packet_of(node.op) == "einsum" and len(refs([list(node.args), node.kwargs])) > 1


def written(node: Node) -> list[str]:
    """Values whose memory the operator writes: in place, by `out=`, or the running statistics of a norm in training."""
    declared = schema(node.op)
    if declared is None:
        return _foreign(node)
    if packet_of(node.op) in METADATA:
        return []
    given = list(declared.operands(node))
    result = [value for argument, value in given if argument.written]
    named = {argument.name: value for argument, value in given}
    statistics = [value for name, value in named.items() if name in ("running_mean", "running_var")]
    if statistics and not result:
        flags = [
            value
            for name, value in named.items()
            if name in ("training", "train", "use_input_stats")
        ]
        result = statistics if all(flags) else []
    return refs(result)


def _foreign(node: Node) -> list[str]:
    """Operands of an ATen operator without declaration whose name says that it writes: any of them may be written."""
    if not node.op.startswith("aten."):
        return []
    _, packet, overload = node.op.split(".")
    writes = (
        packet.endswith("_")
        and not packet.endswith("__")
        or overload.endswith("out")
        or "out" in node.kwargs
    )
    return refs([list(node.args), node.kwargs]) if writes else []


def is_step(node: Node) -> bool:
    """The operator runs even if its result is unused: a call left to PyTorch, or a question whose answer the graph depends on."""
    return node.op in ("left", "expect")


def refs(value: Any) -> list[str]:
    """Names referenced in an encoded operand, in order."""
    if isinstance(value, dict):
        return (
            [value["ref"]]
            if set(value) == {"ref"}
            else [name for part in value.values() for name in refs(part)]
        )
    return (
        [name for part in value for name in refs(part)] if isinstance(value, (list, tuple)) else []
    )


def rename(value: Any, mapping: dict[str, str]) -> Any:
    """An encoded operand with references renamed."""
    if isinstance(value, dict):
        if set(value) == {"ref"}:
            return {"ref": mapping.get(value["ref"], value["ref"])}
        return {k: rename(v, mapping) for k, v in value.items()}
    return [rename(v, mapping) for v in value] if isinstance(value, (list, tuple)) else value


class AliasClasses:
    """Classes of value names that may share memory."""

    def __init__(self, nodes: tuple[Node, ...] = ()):
        self._parent: dict[str, str] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """Add an operator's result."""
        for other in shared(node):
            self._parent[self.of(other)] = self.of(node.name)

    def of(self, name: str) -> str:
        """A representative of all values that may share memory with this one."""
        while (parent := self._parent.get(name, name)) != name:
            self._parent[name] = name = self._parent.get(parent, parent)
        return name


def touched(nodes: tuple[Node, ...]) -> set[str]:
    """Values whose memory some operator writes, under any name."""
    memory = AliasClasses(nodes)
    changed = {memory.of(name) for node in nodes for name in written(node)}
    return {node.name for node in nodes if memory.of(node.name) in changed} if changed else set()


def pinned(graph: Graph) -> set[str]:
    """Names of operators that must stay PyTorch calls in program order because they touch written memory.

    Capture turns writes into fresh memory into ordinary operators; the remaining ones mutate an input, a buffer or an aliased tensor, so
    every operator on that memory keeps its place.
    """
    changed = touched(graph.nodes)
    return (
        {
            n.name
            for n in graph.nodes
            if n.name in changed or changed.intersection(refs([list(n.args), n.kwargs]))
        }
        if changed
        else set()
    )


def unknown(graph: Graph) -> set[str]:
    """Names of operators on tensors whose sizes depend on values: they stay calls, and rules do not read their results."""
    sizes = {node.name for node in graph.nodes if node.shape is None and node.dtype is not None}
    result = set(sizes)
    for node in graph.nodes if sizes else ():
        if sizes.intersection(refs([list(node.args), node.kwargs])):
            result.add(node.name)
            if node.shape is None:
                sizes.add(node.name)
    return result


def walk_refs(value: Any, visit: Callable[[str], object]) -> None:
    """Call `visit` with every SSA name referenced in an encoded operand."""
    if isinstance(value, dict):
        if set(value) == {"ref"}:
            visit(value["ref"])
        else:
            for part in value.values():
                walk_refs(part, visit)
    elif isinstance(value, (list, tuple)):
        for part in value:
            walk_refs(part, visit)
