"""The loops over keys of a block of queries: over what it sees, with conditions only where some of its queries see less than others.

Under a causal mask these are the blocks before the diagonal and those on it; under a sliding window also those at its start
(`analysis.seen_keys`).
"""

from __future__ import annotations

from dataclasses import dataclass

from dvk.composer.codegen.analysis.seen_keys import Seen, Sum
from dvk.composer.codegen.analysis.tiles import TileAxis
from dvk.composer.codegen.triton.writer import TritonWriter

MIN_DOT = 16
NARROW, WIDE = 1 << 30, 1 << 62
"""Places that need no 64 bits, and the size that a sum of them may have in 64 bits."""
Walk = tuple[str, str, bool]
"""Start and end of a loop as source text, and whether its blocks apply conditions."""


@dataclass
class Walks:
    """Writes the bounds of the loops; `y` are queries, `x` keys."""

    ups: TritonWriter
    seen: Seen
    y: TileAxis
    x: TileAxis

    def written(self, piece: str, splits: int) -> list[Walk]:
        """Declare what the loops need, and their bounds.

        Args:
            piece: text of the slice of the keys that a program reads.
            splits: number of slices.
        """
        seen, block, length = self.seen, self.x.block, self.x.size
        tile = self.ups.tile
        begin = self._bound("begin", seen.first, "min", "max", 0)
        end = self._bound("end", seen.end, "max", "min", length)
        if begin != "0":
            tile.put(f"begin = {begin} // {block} * {block}")
            begin = "begin"
        if splits > 1:
            blocks = (length + block - 1) // block
            chunk = (blocks + splits - 1) // splits * block
            start = f"{piece} * {chunk}"
            begin = start if begin == "0" else f"tl.maximum({begin}, {start})"
            return [(begin, f"tl.minimum({start} + {chunk}, {end})", True)]
        rest = length % block != 0
        if not (seen.conditions or rest):
            return [("0", str(length), False)]
        if not seen.whole or self.y.block <= MIN_DOT or length <= block:
            return [(begin, end, True)]
        return self._phases(begin, end, rest)

    def _phases(self, begin: str, end: str, rest: bool) -> list[Walk]:
        """Blocks that some queries see no more, those that all of them see, and those that some do not see yet."""
        seen, block, tile = self.seen, self.x.block, self.ups.tile
        walks: list[Walk] = []
        inner, outer = "0", str(self.x.size // block * block)
        if seen.first:
            start = self._bound("all_from", seen.first, "max", "max", 0)
            most = block - 1
            tile.put(
                f"inner = tl.minimum(({start} + {most}) // {block}, ({end} + {most}) // {block}) * {block}"
            )
            inner = "inner"
            walks.append((begin, f"tl.minimum(inner, {end})", True))
        if seen.end:
            stop = self._bound("all_to", seen.end, "min", "min", self.x.size)
            tile.put(f"outer = {stop} // {block} * {block}")
            outer = "outer"
        if seen.first:
            tile.put(f"outer = tl.maximum({outer}, inner)")
            outer = "outer"
        walks.append((inner, outer, False))
        return [*walks, (outer, end, True)] if seen.end or rest else walks

    # -------------------------------------------------------------- places of keys

    def varies(self, place: Sum) -> bool:
        """A place differs between queries of a block."""
        names = {a.name for id_ in place.values for a in self.ups.axes_of(id_)}
        return "y" in names or bool(place.affine.vars & {*self.y.vars})

    def _bound(self, name: str, places: list[Sum], queries: str, among: str, limit: int) -> str:
        """Declare the least or the greatest of some places, between 0 and the number of keys; its text.

        Args:
            queries: `min` or `max`, over the queries of a block.
            among: the same, over places.
            limit: a further place.
        """
        numbers = [p.affine.const for p in places if not (p.values or p.affine.vars)]
        known = max([limit, *numbers]) if among == "max" else max(min([limit, *numbers]), 0)
        text = str(min(known, self.x.size))
        others = [p for p in places if p.values or p.affine.vars]
        if not others:
            return text
        for place, words in zip(others, self._texts(others), strict=True):
            each = f"tl.{queries}({words})" if self.varies(place) else f"({words})"
            text = f"tl.{among}imum({text}, {each})"
        text = f"tl.minimum({text}, {self.x.size})" if among == "max" else f"tl.maximum({text}, 0)"
        kind = "tl.int64" if self.ups.tile.wide else "tl.int32"
        self.ups.tile.put(f"{name} = {text}.to({kind})")
        return name

    def _texts(self, places: list[Sum]) -> list[str]:
        """Source text of places, after what they need."""
        needed = {id_ for place in places for id_ in place.values}
        for instr in self.ups.closure(needed, row_level=True):
            self.ups.emit(instr)
        return [self._text(place) for place in places]

    def _text(self, place: Sum) -> str:
        """Source text of a place that no value overflows: a length of 2³¹ - 1, which stands for no end at all, has a place behind it."""
        offset = place.affine
        if not place.values and max(map(abs, offset.span())) < NARROW:
            return self.ups.tile.offset(offset)
        # Values that stand for no bound are far outside of the keys wherever they are cut off, and so are their sums.
        most = WIDE // (2 + sum(map(abs, place.values.values())))
        parts = [
            f"tl.minimum(tl.maximum(v{id_}.to(tl.int64), {-most}), {most})"
            + (f" * {by}" if by != 1 else "")
            for id_, by in place.values.items()
        ]
        moving = offset.shift(-offset.const)
        if moving.vars:
            parts.append(f"({self.ups.tile.offset(moving)}).to(tl.int64)")
        if const := max(-most, min(offset.const, most)):
            parts.append(str(const))
        return " + ".join(parts)
