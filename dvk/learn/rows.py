"""Rows: what the learner sees of one conversation, and a store of many on disk.

A row is a sequence of token ids of which some are *targets*: what the assistant said. Masks come from
where the parts of a conversation begin and end, never from the values of ids. A store keeps millions of
rows as three flat arrays that are mapped, not read.
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
class Row:
    """One sequence.

    Attributes:
        ids: token ids, shape (length,).
        targets: for each token, whether it is learned, shape (length,); the first never is.
        advantage: how much every target counts, and in which direction; 1 in SFT.
        logprobs: the sampler's log-probability of each target, shape (number of targets,); empty in SFT.
        role: which agent said it; what metrics are split by.
        key: what tells this row from others, e.g. (task id, scheme, rollout, turn).
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
            raise ValueError(f"{len(self.logprobs)} log-probabilities for {sum(self.targets)} targets")

    @classmethod
    def answer(cls, prompt: Sequence[int], completion: Sequence[int], **rest: Any) -> Row:
        """A prompt, of which nothing is learned, and its completion, of which everything is."""
        return cls([*prompt, *completion], [False] * len(prompt) + [True] * len(completion), **rest)


class Store:
    """Rows on disk without advantages: what SFT reads. Open with `Store(folder)`, make with `Store.write`."""

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
            raise UsageError(f"no tokenised rows in `{folder}`", "run `dvk sft fit` from its beginning") from None
        self.starts = np.load(folder / "starts.npy", mmap_mode="r")
        nothing = self.info["num_tokens"] == 0  # which cannot be mapped
        self.ids = np.zeros(0, self.info["dtype"]) if nothing else np.memmap(folder / "ids.bin", dtype=self.info["dtype"], mode="r")
        self.targets = np.zeros(0, bool) if nothing else np.memmap(folder / "targets.bin", dtype=bool, mode="r")

    @classmethod
    def write(cls, folder: Path, rows: Iterable[tuple[Sequence[int] | np.ndarray, Sequence[bool] | np.ndarray]], vocabulary: int,
              info: Mapping[str, Any] = MappingProxyType({})) -> Store:
        """Make a store from (ids, targets) pairs; it exists only when it is whole.

        Args:
            folder: where it will be; what is there is replaced.
            rows: in the order in which they are numbered.
            vocabulary: ids are below this.
            info: kept in `store.json`.
        """
        import numpy as np

        dtype = "uint16" if vocabulary <= 1 << 16 else "uint32"
        aside = folder.with_name(folder.name + ".part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        starts = [0]
        num_targets = 0
        with (aside / "ids.bin").open("wb") as ids_file, (aside / "targets.bin").open("wb") as targets_file:
            for block in _blocks(rows, BLOCK_ROWS):
                ids_file.write(np.concatenate([np.asarray(ids, dtype) for ids, _ in block]).tobytes())
                marks = np.concatenate([np.asarray(targets, bool) for _, targets in block])
                targets_file.write(marks.tobytes())
                num_targets += int(marks.sum())
                for ids, _ in block:
                    starts.append(starts[-1] + len(ids))
        np.save(aside / "starts.npy", np.asarray(starts, np.int64))
        (aside / "store.json").write_text(json.dumps(
            {**info, "dtype": dtype, "num_rows": len(starts) - 1, "num_tokens": starts[-1], "num_targets": num_targets}))
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
        return cls(folder)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def lengths(self) -> np.ndarray:
        """Tokens of every row, shape (rows,)."""
        import numpy as np

        return np.diff(self.starts)

    def row(self, index: int) -> Row:
        """The row with this number, advantage 1."""
        begin, end = self.starts[index], self.starts[index + 1]
        return Row(self.ids[begin:end].tolist(), self.targets[begin:end].tolist())


def _blocks(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    block = []
    for row in rows:
        block.append(row)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block
