"""Rows in the formats of other projects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

SOURCE = """import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)
        self.act = nn.Sequential(nn.ReLU(), nn.LayerNorm(width))

    def forward(self, x):
        x = self.act(self.proj(x)) * 0.5 + x
        return F.softmax(x, dim=-1).sum()

def get_inputs():
    return [torch.randn(128, 64)]
"""

PROMPT = (
    "You write Triton kernels. Example:\n```python\nclass Example: pass\n```\n"
    f"The task:\n```python\n{SOURCE}```\nOptimize the architecture named Model"
)


def answer(number: int) -> str:
    return f"First an idea.\n```python\nimport triton\n# round {number}\n@triton.jit\ndef k(): ...\nclass ModelNew: pass\n```\nDone."


def told(speedup: float, correct: bool = True, **rest: Any) -> str:
    state = {
        "task_id": "t",
        "status": "completed",
        "compiled": True,
        "correctness": correct,
        "speedup": speedup,
        "metadata": {"gpu": {"a": 1}},
        **rest,
    }
    return f"Here is server feedback:\n{json.dumps(state, indent=2)}\nImprove {{it}}."


def trajectory() -> list[dict[str, str]]:
    """Five rounds as in the cold-start set: the last answer has no feedback."""
    texts = [
        PROMPT,
        answer(1),
        told(0.0, False),
        answer(2),
        told(1.4),
        answer(3),
        told(2.5),
        answer(4),
        told(9.0, decoy_kernel=True),
        answer(5),
    ]
    return [
        {"role": "user" if number % 2 == 0 else "assistant", "content": text}
        for number, text in enumerate(texts)
    ]


def coldstart_row(**changes: Any) -> dict[str, Any]:
    row = {
        "messages": trajectory(),
        "uuid": 7,
        "entry_point": "Model",
        "repo_name": "r",
        "module_name": "Block",
        "final_speedup": 2.6,
        "num_rounds": 5,
        "original_python_code": SOURCE,
        "best_round": 3,
        "timestamp": 1.0,
        "conversion_mode": "m",
        "enable_thinking": False,
    }
    return row | changes


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def json_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def teacher_row(tool: str, arguments: dict[str, Any], **rest: Any) -> dict[str, Any]:
    raw = {"id": "c", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": PROMPT}]
    origin = {"uuid": 7, "best_round": 3, "round_speedups": [0, 1.4, 2.5]}
    return {
        "uuid": 7,
        "status": "ok",
        "think": "t",
        "content": "",
        "tool_call_raw": raw,
        "input_messages": asked,
        "source_record": origin,
    } | rest
