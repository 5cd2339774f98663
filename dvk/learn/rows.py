"""Rows: the learner's form of one conversation, and a store of many on disk.

A row is a sequence of token ids of which some are *targets*: the assistant's tokens. Masks come from
the boundaries of a conversation's parts, never from the values of ids. A store keeps millions of
rows as three flat arrays that are memory-mapped.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dvk.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

BLOCK_ROWS = 4096
"""Rows written at a time: a few megabytes."""


@dataclass(frozen=True)
class TrainingRow:
    """One sequence.

    Attributes:
        ids: token ids, shape (length,).
        targets: for each token, whether it is learned, shape (length,); the first never is.
        advantage: weight and sign of every target; 1 in SFT.
        logprobs: the sampler's log-probability of each target, shape (number of targets,); empty in SFT.
        role: the agent; metrics are split by it.
        key: the row's identity, e.g. (task id, scheme, rollout, turn).
    """

    ids: Sequence[int]
    targets: Sequence[bool]
    advantage: float = 1.0
    logprobs: Sequence[float] = ()
    role: str = "policy"
    key: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.targets):
            raise ValueError(f"{len(self.ids)} tokens and {len(self.targets)} marks")
        if self.targets and self.targets[0]:
            raise ValueError("nothing precedes the first token: it cannot be a target")
        if self.logprobs and len(self.logprobs) != sum(self.targets):
            raise ValueError(
                f"{len(self.logprobs)} log-probabilities for {sum(self.targets)} targets"
            )

    @classmethod
    def answer(
        cls,
        prompt: Sequence[int],
        completion: Sequence[int],
        logprobs: Sequence[float] = (),
        given: Sequence[int] = (),
        **rest: Any,
    ) -> TrainingRow:
        """A prompt, of which nothing is learned, and its completion, which is learned but for the `given` positions.

        Args:
            logprobs: of each completion token, shape (tokens,), or none.
        """
        left_out = frozenset(given)
        learned = [position not in left_out for position in range(len(completion))]
        scores = tuple(score for score, is_learned in zip(logprobs, learned) if is_learned)
        marks = [False] * len(prompt) + learned
        return cls([*prompt, *completion], marks, logprobs=scores, **rest)


class RowStore:
    """Rows on disk without advantages: SFT's input. Open with `Store(folder)`, make with `RowStore.write`."""

    def __init__(self, folder: Path):
        """Map the arrays of a finished store.

        Raises:
            UsageError: there is none.
        """
        import numpy as np

        self.folder = folder
        try:
            self.info: dict[str, Any] = json.loads((folder / "store.json").read_text())
        except OSError:
            raise UsageError(
                f"no tokenised rows in `{folder}`", "run `dvk sft fit` from its beginning"
            ) from None
        self.starts = np.load(folder / "starts.npy", mmap_mode="r")
        nothing = self.info["num_tokens"] == 0  # which cannot be mapped
        self.ids = (
            np.zeros(0, self.info["dtype"])
            if nothing
            else np.memmap(folder / "ids.bin", dtype=self.info["dtype"], mode="r")
        )
        self.targets = (
            np.zeros(0, bool)
            if nothing
            else np.memmap(folder / "targets.bin", dtype=bool, mode="r")
        )

    @classmethod
    def write(
        cls,
        folder: Path,
        rows: Iterable[tuple[Sequence[int] | np.ndarray, Sequence[bool] | np.ndarray]],
        vocabulary: int,
        info: Mapping[str, Any] = MappingProxyType({}),
    ) -> RowStore:
        """Make a store from (ids, targets) pairs; see `RowStoreWriter`."""
        import numpy as np

        writer = RowStoreWriter(folder, vocabulary)
        for block in _blocks(rows, BLOCK_ROWS):
            ids, targets = (
                [np.asarray(ids, writer.dtype) for ids, _ in block],
                [np.asarray(marks, bool) for _, marks in block],
            )
            writer.add(
                np.concatenate(ids), np.concatenate(targets), np.array([len(row) for row in ids])
            )
        return writer.finish(info)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def lengths(self) -> np.ndarray:
        """Tokens of every row, shape (rows,)."""
        import numpy as np

        return np.diff(self.starts)

    def row(self, index: int) -> TrainingRow:
        """The row with this number, advantage 1."""
        begin, end = self.starts[index], self.starts[index + 1]
        return TrainingRow(self.ids[begin:end].tolist(), self.targets[begin:end].tolist())


class RowStoreWriter:
    """Makes a store, many rows at a time; it appears when `finish` has completed it.

    Args:
        folder: target; existing content is replaced.
        vocabulary: ids are below this.
    """

    def __init__(self, folder: Path, vocabulary: int):
        self.folder, self.dtype = folder, dtype_for(vocabulary)
        self._aside = folder.with_name(folder.name + ".part")
        shutil.rmtree(self._aside, ignore_errors=True)
        self._aside.mkdir(parents=True)
        self._ids, self._targets = (
            (self._aside / "ids.bin").open("wb"),
            (self._aside / "targets.bin").open("wb"),
        )
        self._lengths: list[np.ndarray] = []
        self._num_targets = 0

    def add(self, ids: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> None:
        """Consecutive rows, in the order of their numbers.

        Args:
            ids: of all rows, shape (tokens,).
            targets: for each token, whether it is learned, bool, shape (tokens,).
            lengths: tokens of every row, shape (rows,).
        """
        self._ids.write(ids.astype(self.dtype, copy=False).tobytes())
        self._targets.write(targets.tobytes())
        self._lengths.append(lengths)
        self._num_targets += int(targets.sum())

    def finish(self, info: Mapping[str, Any] = MappingProxyType({})) -> RowStore:
        """The store; `info` is kept in its `store.json`."""
        import numpy as np

        self._ids.close()
        self._targets.close()
        starts = np.concatenate([np.zeros(1, np.int64), *self._lengths]).cumsum(dtype=np.int64)
        np.save(self._aside / "starts.npy", starts)
        (self._aside / "store.json").write_text(
            json.dumps(
                {
                    **info,
                    "dtype": self.dtype,
                    "num_rows": len(starts) - 1,
                    "num_tokens": int(starts[-1]),
                    "num_targets": self._num_targets,
                }
            )
        )
        shutil.rmtree(self.folder, ignore_errors=True)
        self._aside.rename(self.folder)
        return RowStore(self.folder)


def dtype_for(vocabulary: int) -> str:
    """The narrowest type of ids below `vocabulary`."""
    return "uint16" if vocabulary <= 1 << 16 else "uint32"


def _blocks(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    block = []
    for row in rows:
        block.append(row)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block
