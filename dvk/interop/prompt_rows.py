"""One table of tasks for TRL, verl and SkyRL: a row a task, with the columns that each of them reads.

TRL     prompt, task
verl    data_source, prompt, reward_model, extra_info; metrics are apart by data_source: dvk_train, dvk_heldout
SkyRL   data_source, prompt, env_class, reward_spec, extra_info
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dvk.interop import tables
from dvk.interop.problem_sets import Problem

COLUMNS: dict[str, tables.Column] = {
    "data_source": "string",
    "prompt": [{"role": "string", "content": "string"}],
    "ability": "string",
    "env_class": "string",
    "task": "string",
    "split": "string",
    "reward_model": {"style": "string", "ground_truth": "string"},
    "reward_spec": {"method": "string", "ground_truth": "string"},
    "extra_info": {"split": "string", "name": "string"},
}


def write(path: Path, problems: Iterable[Problem]) -> int:
    """Write the table; returns the number of rows.

    Raises:
        MachineError: pyarrow is not installed.
    """
    return tables.write_parquet(path, COLUMNS, map(row, problems))


def row(problem: Problem) -> dict[str, Any]:
    """One task."""
    return {
        "data_source": f"dvk_{problem.split}",
        "prompt": [{"role": "user", "content": problem.prompt}],
        "ability": "kernel_optimization",
        "env_class": "dvk",
        "task": problem.task,
        "split": problem.split,
        "reward_model": {"style": "rule", "ground_truth": problem.task},
        "reward_spec": {"method": "rule", "ground_truth": problem.task},
        "extra_info": {"split": problem.split, "name": problem.name},
    }
