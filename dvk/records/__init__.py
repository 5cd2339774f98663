"""The records that flow between layers: frozen facts, one sentence a field, no contradictory states.

`Task` and `Graph` say what is to be made faster, a `Candidate` is one attempt, a `Verdict` is what
the judge found, a `Turn` is a judged attempt with its conversation, a `Trace` one role's turns,
an `Episode` everything that happened for one task. A `Skill` is what the library remembers.
"""

from __future__ import annotations

from dvk.records.candidate import BackendName, Candidate
from dvk.records.episode import Episode, Role, Tokens, Trace, Turn
from dvk.records.graph import Graph, Node
from dvk.records.interval import Interval, show_ratio
from dvk.records.record import Record, content_hash
from dvk.records.skill import Skill
from dvk.records.task import Device, ShapeVariant, Task, TensorSpec
from dvk.records.verdict import PROTOCOL, Claim, Status, Tier, Timing, Verdict

__all__ = [
    "BackendName",
    "Candidate",
    "Claim",
    "Device",
    "Episode",
    "Graph",
    "Interval",
    "Node",
    "PROTOCOL",
    "Record",
    "Role",
    "ShapeVariant",
    "Skill",
    "Status",
    "Task",
    "TensorSpec",
    "Tier",
    "Timing",
    "Tokens",
    "Trace",
    "Turn",
    "Verdict",
    "content_hash",
    "show_ratio",
]
