"""A judge that answers from a table of measured plans: `--judge table:FILE`. Nothing runs, no GPU is needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from dvk.config import Config
from dvk.errors import UsageError
from dvk.harness.remote.elsewhere import JudgeElsewhere
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.records import Candidate, Status, Task, Tier, Verdict
from dvk.records.measured import MeasuredTask, plan_key, read_table

PREFIX = "table:"
UNKNOWN = "unknown: "
"""How the error of a verdict begins that the table does not hold."""


class TableJudgeSession(JudgeElsewhere):
    """A judge whose verdicts were measured earlier.

    Args:
        task: the reference.
        config: `remote.judge` names the table.
        spec: not used: a table has one verdict of a plan.

    Raises:
        UsageError: there is no such table.
    """

    def __init__(self, task: Task, config: Config, spec: JudgeSpec = JudgeSpec()):  # noqa: B008 - it is frozen
        assert config.remote.judge is not None, "there is no table"
        super().__init__(task, config)
        self.path = Path(config.remote.judge.removeprefix(PREFIX)).expanduser()
        self._tasks = tasks_of(self.path)

    def judge(
        self,
        candidate: Candidate,
        tier: Tier = "search",
        baselines: Sequence[str] = (),
        deadline: float | None = None,
    ) -> Verdict | None:
        """The verdict in the table; `broken_task` for a plan that it does not hold, so that nothing is learned from it."""
        verdict = self._tasks.get(self.task.id, {}).get(
            plan_key(candidate.recipes, candidate.schedule)
        )
        if verdict is not None:
            return verdict
        missing = "this plan" if self.task.id in self._tasks else "the task"
        return Verdict(
            status=Status.BROKEN_TASK,
            tier=tier,
            stage="static",
            error=f"{UNKNOWN}`{self.path}` does not hold {missing}",
        )


def require_plans(judge: str | None, model: str, dialect: str) -> None:
    """Refuse a model whose every answer would be unknown to a table.

    Args:
        judge: `remote.judge`; only tables need plans.
        dialect: what the model reads and writes.

    Raises:
        UsageError: it writes kernels.
    """
    if judge is not None and judge.startswith(PREFIX) and dialect != "plan":
        raise UsageError(
            f"{model} writes kernels, and a table holds plans of the composer",
            "make a model that chooses plans: `dvk sft choose TABLE`, then nano:RUN/checkpoints/fit",
        )


def is_unknown(verdict: Verdict) -> bool:
    """Whether a table was asked for a plan that it does not hold."""
    return verdict.status is Status.BROKEN_TASK and (verdict.error or "").startswith(UNKNOWN)


def tasks_of(path: Path) -> dict[str, dict[str, Verdict]]:
    """Verdict by task id and plan key; a table that has changed on disk is read again.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as error:
        problem = f"cannot read the table `{path}`: {error.strerror}"
        raise UsageError(problem, "make one with `dvk measure`") from None
    return _indexed(path, changed_ns)


@lru_cache(maxsize=4)
def _indexed(path: Path, changed_ns: int) -> dict[str, dict[str, Verdict]]:
    del changed_ns
    by_task: dict[str, dict[str, Verdict]] = {}
    for row in read_table(path):
        plans = by_task.setdefault(row.task.id, {})
        plans.update({plan.key: plan.verdict for plan in row.plans})
    return by_task


def known_tasks(path: Path) -> list[MeasuredTask]:
    """The tasks of a table.

    Raises:
        UsageError: it cannot be read.
    """
    tasks_of(path)
    return list(read_table(path))
