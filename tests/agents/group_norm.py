"""A task to ask about, without its graph."""

from __future__ import annotations

from dvk.agents.task_context import TaskContext
from dvk.records import Task

SOURCE = """\
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, 64)
    def forward(self, x):
        return F.silu(self.norm(x))
"""

TASK = Task(id="t", name="norm", source=SOURCE, entry="Model", kind="module")

HERE = TaskContext(TASK, None, "cpp")
