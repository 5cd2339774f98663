"""What the programs of a drop-in were made for: calls, weights, modes, in the form that its guards read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dvk.composer.capture.export import CannotCompose, CapturedGraph
from dvk.composer.dropin.forward import ForwardProgram, parameter
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import touched
from dvk.composer.ir.symint import ARGUMENT, SymbolicSize
from dvk.records import Node, Task

Held = dict[tuple[str, int], int]
"""Map the path of a weight, and its index among one program's values of that path, to its index in `_dvk_weights`."""
Ranges = tuple[tuple[str, int, int], ...]
"""Dimensions by name, with the smallest and the largest size."""


@dataclass(frozen=True)
class Fused:
    """A program and the call that it was made for."""

    captured: CapturedGraph
    program: ForwardProgram
    graph_replay: bool = False
    """Run it through a captured CUDA graph."""
    backward: ForwardProgram | None = None
    """The second program of a training step."""
    ranges: Ranges = ()
    """Dimensions whose sizes are arguments of the program, and the sizes that the guards let through."""
    within: Ranges = ()
    """The sizes it runs for; other programs of the same graph run for the rest of `ranges`."""

    def joined(self, other: Fused) -> Fused | None:
        """This and another program of the range as one; None if they differ, or their sizes make no box."""
        mine, theirs = self.program, other.program
        if not self.ranges or self.ranges != other.ranges:
            return None
        if (mine.lines, mine.result) != (theirs.lines, theirs.result):
            return None
        within = joined(self.within, other.within)
        return replace(self, within=within) if within is not None else None

    @property
    def inputs(self) -> list[Node]:
        """The tensors of the call."""
        return [n for n in self.captured.graph.nodes if n.op == "input"]

    @property
    def arguments(self) -> list[str]:
        """All arguments of the call, by their names in generated text."""
        return [parameter(name) for name in self.captured.arguments]

    @property
    def tensors(self) -> list[str]:
        """The names of the call's tensors in the program."""
        return [parameter(str(n.target)) for n in self.inputs]

    @property
    def takes(self) -> list[str]:
        """Parameters of the program: the arguments, or their tensors if some are nested."""
        return self.tensors if self.captured.structure else self.arguments


def asked(fused: Sequence[Fused]) -> tuple[str, ...]:
    """Functions of torch that answer no where the programs may run."""
    programs = [p for one in fused for p in (one.program, one.backward) if p is not None]
    order = {"are_deterministic_algorithms_enabled"} if any(p.unordered for p in programs) else ()
    return tuple(sorted({name for one in fused for name in one.captured.asked}.union(order)))


def joined(box: Ranges, other: Ranges) -> Ranges | None:
    """Two boxes as one; None if they are not neighbours along one dimension."""
    differing = [n for n, (a, b) in enumerate(zip(box, other, strict=True)) if a != b]
    if len(differing) != 1:
        return None
    (at,) = differing
    (name, lo, hi), (_, least, most) = box[at], other[at]
    if hi + 1 != least:
        return None
    return (*box[:at], (name, lo, most), *box[at + 1 :])


class Ranged(Protocol):
    """What serves the calls of some sizes."""

    @property
    def ranges(self) -> Ranges: ...


def whom(parts: Sequence[Ranged]) -> str:
    """The calls that programs are for, as the end of a sentence; empty for those of one set of inputs."""
    ranges = parts[0].ranges
    if ranges and all(one.ranges == ranges for one in parts):
        return f" for {', '.join(f'{name} {lo}..{hi}' for name, lo, hi in ranges)}"
    return f" for {len(parts)} sets of inputs" if len(parts) > 1 else ""


def keyed(weights: Sequence[Node]) -> Iterator[tuple[tuple[str, int], Node]]:
    seen: Counter[str] = Counter()
    for node in weights:
        path = str(node.target)
        yield (path, seen[path]), node
        seen[path] += 1


def held_by(fused: Sequence[Fused]) -> Held:
    keys = dict.fromkeys(key for one in fused for key, _ in keyed(one.program.weights))
    return {key: position for position, key in enumerate(keys)}


def facts(task: Task, fused: Sequence[Fused], held: Held) -> list[str]:
    """The calls that the programs were made for, in the form that `guards.dvk_guarded` reads.

    Raises:
        CannotCompose: the programs belong to different modules.
    """
    (left, *_) = {one.captured.left: None for one in fused}
    layouts = [
        f"({held[key]}, {node.shape!r}, {node.strides!r}, torch.{node.dtype})"
        for one in fused
        for key, node in keyed(one.program.weights)
        if id(node) in {id(node) for node in one.program.guarded}
    ]
    layouts = list(dict.fromkeys(layouts))
    result = {
        "inputs": _inputs(fused),
        "device": repr(task.device) if task.device != "cpu" else "",
        "asked": repr(asked(fused) or ""),
        "read": _read(fused) if task.kind == "module" else "",
        "apart": repr(left) if left else "",
        "calls": repr(
            {key: place for one in fused for key, place in one.program.left.items()} or ""
        ),
        "paths": repr(tuple(path for path, _ in held)) if held else "",
        "layouts": _lines([f"{one}," for one in layouts]),
        "writes": repr(_writes(fused, held) or ""),
    }
    return [f"_dvk_{name} = {value}" for name, value in result.items() if value not in ("", "''")]


def _writes(fused: Sequence[Fused], held: Held) -> tuple[int, ...]:
    """Positions of the weights that some program writes."""
    return tuple(
        sorted(
            {
                held[key]
                for one in fused
                for changed in (touched(one.captured.graph.nodes),)
                for key, node in keyed(one.program.weights)
                if node.name in changed
            }
        )
    )


def _inputs(fused: Sequence[Fused]) -> str:
    """The parameters of each program, what it expects of the arguments, and the method that unpacks nested ones."""
    every: dict[str, str] = {}
    for number, one in enumerate(fused):
        expected = [f"{str(node.target)!r}: {_expected(one, node)}" for node in one.inputs]
        expected += [
            f"{name!r}: {'1e999' if value == float('inf') else repr(value)}"
            for name, value in one.captured.constants.items()
            if repr(value) not in ("nan", "-inf")
        ]
        inside = f"_dvk_inside_{number + 1}" if number else "_dvk_inside"
        text = f"{one.captured.arguments!r}, {{{', '.join(expected)}}}"
        every.setdefault(text, repr(inside if one.captured.structure else ""))
    return _lines([f"({text}, {inside})," for text, inside in every.items()])


def _expected(one: Fused, node: Node) -> str:
    """Shape, strides and dtype of a tensor; sizes of a range as text. Strides are empty if they are row-major, None if not known."""
    limits = {f"{ARGUMENT}{name}": f"{name}:{lo}..{hi}" for name, lo, hi in one.ranges}
    shape = tuple(
        limits.get(repr(size), repr(size)) if isinstance(size, SymbolicSize) else size
        for size in node.shape or ()
    )
    strides: tuple[int, ...] | None = node.strides
    if any(isinstance(size, SymbolicSize) for size in (*(node.shape or ()), *(strides or ()))):
        strides = () if node.strides == contiguous_strides(node.shape or ()) else None
    return f"({shape!r}, {strides!r}, torch.{node.dtype})"


def _read(fused: Sequence[Fused]) -> str:
    """What the programs depend on in the modules, grouped by modules with the same facts.

    Raises:
        CannotCompose: two programs depend on different facts.
    """
    facts: dict[str, dict[str, str]] = {}
    for one in fused:
        for path, names in one.captured.facts.items():
            held = facts.setdefault(path, {})
            for name, text in names.items():
                if held.setdefault(name, text) != text:
                    what = "'s mode" if name == "training" else ""
                    raise CannotCompose(f"the module{what} differs for other inputs")
    groups: dict[str, list[str]] = {}
    for path, names in facts.items():
        groups.setdefault(repr(names), []).append(path)
    return _lines([f"({tuple(paths)!r}, {names})," for names, paths in groups.items()])


def _lines(items: Sequence[str]) -> str:
    return "(\n    " + "\n    ".join(items) + "\n)" if items else ""
