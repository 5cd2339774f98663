"""Sources of examples: a list, or files that are never held whole and not parsed when they are only passed on."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from dvk.learn import examples as files
from dvk.learn.examples import Example


class Source(Protocol):
    """Re-iterable examples with access by position."""

    def __iter__(self) -> Iterator[Example]: ...

    def batches(self, size: int) -> Iterator[list[Any]]:
        """Raw items in order, a batch at a time; `parsed` makes examples of a batch, in any process."""
        ...

    def at(self, position: int) -> Example:
        """The example with this number, among those that `batches` has yielded."""
        ...

    def having(self, field: str) -> Iterator[Example]:
        """Examples with a known value of a field, in their order."""
        ...

    def sample(self, count: int) -> Iterator[Example]:
        """About so many, from evenly spaced positions, in their order; all if there are fewer."""
        ...


class InMemory(list[Example]):
    """A list as a source."""

    def batches(self, size: int) -> Iterator[list[Any]]:
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def at(self, position: int) -> Example:
        return self[position]

    def having(self, field: str) -> Iterator[Example]:
        return (example for example in self if getattr(example, field) is not None)

    def sample(self, count: int) -> Iterator[Example]:
        chosen = min(count, len(self))
        return (self[place * len(self) // chosen] for place in range(chosen))


class OnDisk:
    """Files as a source: remembers each line's position, not its content."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = paths
        self._firsts: list[int] = []
        """Number of each file's first line."""
        self._offsets, self._lengths = array("q"), array("q")

    def __iter__(self) -> Iterator[Example]:
        return (files.parse(*line) for line in self._lines())

    def batches(self, size: int) -> Iterator[list[Any]]:
        lines = self._lines()
        while batch := list(islice(lines, size)):
            yield batch

    def _lines(self) -> Iterator[tuple[bytes, str]]:
        """Every line and its position, recording the position."""
        self._firsts, self._offsets, self._lengths = [], array("q"), array("q")
        for path in self.paths:
            self._firsts.append(len(self._offsets))
            name, offset = f"{path}:", 0
            with path.open("rb") as stream:
                for number, line in enumerate(stream, start=1):
                    if not line.isspace():
                        self._offsets.append(offset)
                        self._lengths.append(len(line))
                        yield line, f"{name}{number}"
                    offset += len(line)

    def raw(self) -> Iterator[bytes]:
        """All lines again, in order, without their ends."""
        for path in self.paths:
            for _, line in files.lines(path):
                yield line

    def at(self, position: int) -> Example:
        path = self.paths[bisect_right(self._firsts, position) - 1]
        with path.open("rb") as stream:
            stream.seek(self._offsets[position])
            return files.parse(
                stream.read(self._lengths[position]), f"{path} at byte {self._offsets[position]}"
            )

    def having(self, field: str) -> Iterator[Example]:
        # A field that has its default is not written, so most lines need not be parsed.
        written = f'"{field}"'.encode()
        examples = (files.parse(*line) for line in self._lines() if written in line[0])
        return (example for example in examples if getattr(example, field) is not None)

    def sample(self, count: int) -> Iterator[Example]:
        # Split by bytes, whose total a file knows; lines are about equally long.
        sizes = [path.stat().st_size for path in self.paths]
        step = max(1, sum(sizes) // count)
        begins = 0
        for path, size in zip(self.paths, sizes):
            with path.open("rb") as stream:
                read = -1
                for place in range(-begins % step, size, step):
                    if place:
                        stream.seek(place - 1)
                        stream.readline()  # the rest of the previous line
                    if (at := stream.tell()) > read and (line := stream.readline()).strip():
                        yield files.parse(line, f"{path} at byte {at}")
                    read = max(read, at)
            begins += size


def parsed(batch: Sequence[Any]) -> list[Example]:
    """The examples of a source's batch.

    Raises:
        UsageError: a line is not an example.
    """
    return [one if isinstance(one, Example) else files.parse(*one) for one in batch]
