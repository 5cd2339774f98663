"""Number of hardware queues in the GPU contexts of the judge's processes.

A context with one queue is created in a third of the time, and contexts are created one after another: a claim needs more than twenty. More
queues serve concurrent streams, which only some code uses.
"""

from __future__ import annotations

import re

from dvk.records import Candidate, Task, Tier

ONE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
SEVERAL = re.compile("stream|graph|lstm|gru|rnn", re.IGNORECASE)
"""Words of code that may use several streams; cuDNN's recurrent layers do."""


def of_arms(task: Task, candidate: Candidate, tier: Tier) -> dict[str, str]:
    """Return the environment of the processes timed alongside a candidate's; in a claim all have the same."""
    return of_candidate(task, candidate, tier) if tier == "claim" else {}


def of_candidate(task: Task, candidate: Candidate, tier: Tier) -> dict[str, str]:
    """Return the environment of a candidate's process."""
    several = tier == "claim" and any(
        SEVERAL.search(source) for source in (task.source, candidate.source)
    )
    return {} if several or task.device != "cuda" else ONE
