"""Where examples come from: a list, or files that are read twice and never held whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from dvk.learn import examples as files
from dvk.learn.examples import Example


class Source(Protocol):
    """Examples that can be gone through once and then asked for by position."""

    def __iter__(self) -> Iterator[Example]: ...

    def batches(self, size: int) -> Iterator[list[Any]]:
        """What `__iter__` goes through, as it came, so many at a time; `parsed` makes examples of it, in any process."""
        ...

    def at(self, position: int) -> Example: ...


class InMemory(list[Example]):
    """A list as a source."""

    def batches(self, size: int) -> Iterator[list[Any]]:
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def at(self, position: int) -> Example:
        return self[position]


class OnDisk:
    """Files as a source: remembers where each line is, not what it says."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = paths
        self._places: list[tuple[int, int, int]] = []

    def __iter__(self) -> Iterator[Example]:
        return (files.parse(*line) for line in self._lines())

    def batches(self, size: int) -> Iterator[list[Any]]:
        lines = self._lines()
        while batch := list(islice(lines, size)):
            yield batch

    def _lines(self) -> Iterator[tuple[bytes, str]]:
        """Every line and where it stands, noting where that is."""
        self._places = []
        for file, path in enumerate(self.paths):
            offset = 0
            with path.open("rb") as stream:
                for number, line in enumerate(stream, start=1):
                    if line.strip():
                        self._places.append((file, offset, len(line)))
                        yield line, f"{path}:{number}"
                    offset += len(line)

    def raw(self) -> Iterator[bytes]:
        """All lines again, in order, without their ends."""
        for path in self.paths:
            for _, line in files.lines(path):
                yield line

    def at(self, position: int) -> Example:
        file, offset, length = self._places[position]
        with self.paths[file].open("rb") as stream:
            stream.seek(offset)
            return files.parse(stream.read(length), f"{self.paths[file]} at byte {offset}")


def parsed(batch: Sequence[Any]) -> list[Example]:
    """The examples of a source's batch.

    Raises:
        UsageError: a line is none.
    """
    return [one if isinstance(one, Example) else files.parse(*one) for one in batch]
