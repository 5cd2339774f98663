"""Programs for ranges of sizes: where a call's sizes are read, which sizes the guards let through, which program runs at which.

Several programs of one graph share their guards. Each was measured at one point of the range and runs for the sizes around it.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from dvk.composer.dropin.facts import Fused, Ranges
from dvk.composer.ir.symint import ARGUMENT, SymbolicSize
from dvk.records import Node

SIZE = re.compile(rf"\b{ARGUMENT}\w+")


def groups(fused: Sequence[Fused]) -> Iterator[tuple[int, Sequence[Fused]]]:
    """Programs that share their guards, with the position of the first."""
    start = 0
    while start < len(fused):
        stop = start + 1
        while fused[start].ranges and stop < len(fused) and fused[stop].ranges:
            stop += 1
        yield start, fused[start:stop]
        start = stop


def declared(node: Node) -> dict[str, int]:
    """The dimensions that are sizes of an input: name in texts → position."""
    sizes: dict[str, int] = {}
    for position, size in enumerate(node.shape or ()):
        if isinstance(size, SymbolicSize) and repr(size).startswith(ARGUMENT):
            sizes.setdefault(repr(size), position)
    return sizes


def is_whole(group: Sequence[Fused]) -> bool:
    """The programs serve every size of their range."""
    return sum(_number(one.within) for one in group) == _number(group[0].ranges)


def _number(box: Ranges) -> int:
    return math.prod(hi - lo + 1 for _, lo, hi in box)


def reading(nodes: Sequence[Node], texts: Mapping[str, str], body: str) -> list[str]:
    """Lines that read the sizes which `body` names.

    Args:
        nodes: the call's tensors.
        texts: the text of each, by its path.
    """
    used = set(SIZE.findall(body))
    lines = []
    for node in nodes:
        for name, position in declared(node).items():
            if name in used:
                used.remove(name)
                lines.append(f"{name} = {texts[str(node.target)]}.shape[{position}]")
    return lines


def conditions(
    one: Fused, node: Node, text: str, read: set[str], traced: bool = False
) -> list[str]:
    """Conditions that let through the range's sizes of a tensor and bind their names.

    Args:
        read: names that earlier conditions bind; those bound here are added.
        traced: in terms that a trace can guard.
    """
    limits = {f"{ARGUMENT}{name}": (lo, hi) for name, lo, hi in one.ranges}
    new = {name: at for name, at in declared(node).items() if name not in read}
    read.update(new)
    if not new:
        return []
    return [
        f"{text}.dim() == {len(node.shape or ())}",
        *(
            f"dvk_between(({name} := {text}.shape[{at}]), {limits[name][0]}, {limits[name][1]})"
            if traced
            else f"{limits[name][0]} <= ({name} := {text}.shape[{at}]) <= {limits[name][1]}"
            for name, at in new.items()
        ),
    ]


def choice(group: Sequence[Fused], runs: Sequence[str]) -> list[str]:
    """The body of the method that returns the program for a call's sizes."""
    first = group[0]
    lines = []
    ahead: list[tuple[int, int]] = []
    for one, run in zip(group, runs, strict=True):
        tests = []
        for (name, lo, hi), (_, least, most) in zip(one.within, first.ranges, strict=True):
            # Sizes of one dimension come in order, so that most tests need one end.
            passed = len(first.ranges) == 1 and any(a <= least and b == lo - 1 for a, b in ahead)
            if lo > least and not passed:
                tests.append(f"{ARGUMENT}{name} >= {lo}")
            if hi < most:
                tests.append(f"{ARGUMENT}{name} <= {hi}")
            start = least if passed or lo == least else lo
            ahead.append((start, hi))
        if not tests or (one is group[-1] and is_whole(group)):
            lines.append(f"return self.{run}")
            break
        lines += [f"if {' and '.join(tests)}:", f"    return self.{run}"]
    else:
        lines.append("return None")
    texts = {str(n.target): name for n, name in zip(first.inputs, first.tensors, strict=True)}
    return [*reading(first.inputs, texts, "\n".join(lines)), *lines]


def choosing(group: Sequence[Fused], name: str, runs: Sequence[str]) -> str:
    """The method that returns the program for a call's sizes."""
    body = textwrap.indent("\n".join(choice(group, runs)), " " * 8)
    return f"    def {name}({', '.join(['self', *group[0].takes])}):\n{body}"


def spelled(line: str) -> str:
    """A line with the names that functions of sizes have in a drop-in."""
    return re.sub(r"\bcdiv\(", "dvk_cdiv(", line)


def limited(one: Fused) -> list[str]:
    """Lines that refuse operands of sizes outside of the range."""
    texts = {str(n.target): name for n, name in zip(one.inputs, one.tensors, strict=True)}
    tests = [f"{lo} <= {ARGUMENT}{name} <= {hi}" for name, lo, hi in one.ranges]
    body = " and ".join(tests)
    told = ", ".join(f"{name} {lo}..{hi}" for name, lo, hi in one.ranges)
    if not tests:
        return []
    return [
        *reading(one.inputs, texts, body),
        f"if not ({body}):",
        f'    raise RuntimeError("kernels exist for {told}: compile or export the drop-in again for other sizes")',
    ]
