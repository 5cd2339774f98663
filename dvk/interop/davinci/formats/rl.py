"""The RL and validation parquet of Dr.Kernel and daVinci-kernel, written; `problems` reads it.

Structures are nested as in the published files; `ops` is a JSON list as text, as there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk.interop import tables
from dvk.interop.davinci.formats import operators
from dvk.records import content_hash

COLUMNS: dict[str, tables.Column] = {
    "data_source": "string",
    "prompt": [{"role": "string", "content": "string"}],
    "ability": "string",
    "reward_model": {"style": "string", "ground_truth": "string", "entry_point": "string"},
    "extra_info": {
        "entry_point": "string",
        "level": "string",
        "module_name": "string",
        "ops": "string",
        "original_prompt": "string",
        "repo_name": "string",
        "type": "string",
        "uuid": "string",
    },
}


@dataclass(frozen=True)
class ProblemRow:
    """One problem with its question.

    Attributes:
        name: of the problem.
        level: e.g. `1`; empty if there is none.
        source: Python text with the class `entry`.
        prompt: the policy's first question.
        entry: the reference's class.
    """

    name: str
    level: str
    source: str
    prompt: str
    entry: str = "Model"


def write(path: Path, rows: Iterable[ProblemRow]) -> int:
    """Write the table; returns the number of rows.

    Raises:
        MachineError: pyarrow is not installed.
    """
    return tables.write_parquet(path, COLUMNS, map(_columns, rows))


def _columns(row: ProblemRow) -> dict[str, Any]:
    return {
        "data_source": "dvk",
        "prompt": [{"role": "user", "content": row.prompt}],
        "ability": "kernel_optimization",
        "reward_model": {"style": "rule", "ground_truth": row.source, "entry_point": row.entry},
        "extra_info": {
            "entry_point": row.entry,
            "level": row.level,
            "module_name": row.name,
            "ops": json.dumps(list(operators.signature(row.source, row.entry))),
            "original_prompt": "",
            "repo_name": "",
            "type": "dvk",
            "uuid": content_hash(row.source),
        },
    }
