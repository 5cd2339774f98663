"""An evaluation's cost: tokens and seconds, added up over all its processes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from dvk.backbone import TokenUsage
from dvk.errors import DvkError
from dvk.pipelines.eval.request import SPENT
from dvk.pipelines.eval.rows import EvalRow
from dvk.runs import RunFolder


class Meter:
    """Records the cost since its last record, a row each time, so that a kill loses the last row at most; a context manager."""

    def __init__(self, run: RunFolder):
        self._run = run
        self._usage: TokenUsage | None = None
        self._since = time.monotonic()
        self._noted = {"prompt_tokens": 0, "completion_tokens": 0, "model_s": 0.0, "usd": 0.0}

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Record the rest, unless a user error came before any cost: such a run leaves nothing."""
        if self._usage is not None or not isinstance(error, DvkError):
            self.note()

    def of(self, usage: TokenUsage) -> None:
        """Read a model's counters from now on."""
        self._usage = usage

    def note(self) -> None:
        """Record the cost since the last time."""
        now = time.monotonic()
        row: dict[str, Any] = {"wall_s": round(now - self._since, 3)}
        self._since = now
        if self._usage is not None:
            used = {
                "prompt_tokens": self._usage.prompt_tokens,
                "completion_tokens": self._usage.completion_tokens,
                "model_s": self._usage.seconds,
                "usd": self._usage.cost_usd or 0.0,
            }
            row |= {name: round(value - self._noted[name], 6) for name, value in used.items()}
            row["priced"] = self._usage.cost_usd is not None
            self._noted = used
        self._run.append(SPENT, row)

    def total(self, rows: Sequence[EvalRow]) -> dict[str, Any]:
        """Totals over the whole run.

        Returns:
            wall_s, judge_s, num_candidates; model_s, prompt_tokens, completion_tokens, tokens_per_task: null without a model;
            usd: null if the price is unknown.
        """
        spent = self._run.read(SPENT)
        asked = [row for row in spent if "model_s" in row]
        tokens = {
            name: sum(row[name] for row in asked) if asked else None
            for name in ("prompt_tokens", "completion_tokens")
        }
        written, num_tasks = tokens["completion_tokens"], len({row.task for row in rows})
        return {
            "wall_s": round(sum(row["wall_s"] for row in spent), 3),
            "judge_s": round(sum(row.judge_s for row in rows), 3),
            "num_candidates": sum(len(row.turns) for row in rows),
            **tokens,
            "tokens_per_task": written / num_tasks if written is not None and num_tasks else None,
            "model_s": round(sum(row["model_s"] for row in asked), 3) if asked else None,
            "usd": round(sum(row["usd"] for row in asked), 6)
            if any(row["priced"] for row in asked)
            else None,
        }
