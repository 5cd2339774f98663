"""Figures of a run as they come: `metrics.jsonl`, a row a step, and curves for TensorBoard if it is installed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dvk.runs import RunFolder

FILE = "metrics.jsonl"
FOLDER = "tensorboard"


class Metrics:
    """Writes rows; each has a `step`. Of several processes the one that opened the folder does. A context manager, or `close()` it.

    Args:
        run: the run's folder.
        first: step that this process begins with: later curves, left by a killed process, are hidden.
    """

    def __init__(self, run: RunFolder, first: int = 0):
        self.run = run
        self._first = first
        self._writer: Any = None
        self._installed = True

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows; they are on disk when this returns."""
        rows = list(rows) if self.run.writes else []
        for row in rows:
            self.run.append(FILE, dict(row))
        writer = self._open() if rows else None
        if writer is not None:
            for row in rows:
                for name, value in row.items():
                    if name != "step" and isinstance(value, (int, float)):
                        writer.add_scalar(_tag(name), value, row["step"])
            writer.flush()

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> Any:
        if self._writer is None and self._installed:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                self._installed = False
                return None
            folder = self.run.path / FOLDER
            self._writer = SummaryWriter(
                str(folder), purge_step=self._first if folder.exists() else None
            )
        return self._writer


def rewind(run: RunFolder, step: int, last: Mapping[str, Any] | None) -> None:
    """Restore metrics.jsonl to its state at a checkpoint: rows of later steps are removed, the checkpoint's own is there.

    A run may be killed after a checkpoint and before its row is written, or after a row and before the checkpoint; the row
    in the checkpoint makes both harmless.

    Args:
        run: its folder.
        step: the checkpoint's step; later rows belong to steps that will be repeated.
        last: the checkpoint's row; None: it has none.
    """
    if not run.writes:
        return
    rows = run.read(FILE)
    kept = [row for row in rows if row["step"] < step or (last is None and row["step"] == step)]
    if last is not None:
        kept.append(dict(last))
    if kept != rows:
        run.write_text(FILE, "".join(json.dumps(row) + "\n" for row in kept))


def _tag(name: str) -> str:
    """TensorBoard groups curves by the text before a slash: `reward_turn_1` becomes `reward/turn_1`."""
    group, _, rest = name.partition("_")
    return f"{group}/{rest}" if rest and group in GROUPED else name


GROUPED = {"reward", "val", "left", "unread", "mismatch", "fast"}
"""First words that many figures share."""
