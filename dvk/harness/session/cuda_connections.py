"""How many hardware queues the GPU contexts of a judging's processes have.

A context with one is made in a third of the time, and contexts are made one after another: a claim needs twenty and more.
More than one serve streams that run side by side, which only code that has several can.
"""

from __future__ import annotations

import re

from dvk.records import Candidate, Task, Tier

ONE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
SEVERAL = re.compile("stream|graph|lstm|gru|rnn", re.IGNORECASE)
"""Words of code that may work in several streams; cuDNN's recurrent layers do."""


def of_arms(task: Task, candidate: Candidate, tier: Tier) -> dict[str, str]:
    """Environment of the processes that are timed beside a candidate's; in a claim all have the same."""
    return of_candidate(task, candidate, tier) if tier == "claim" else {}


def of_candidate(task: Task, candidate: Candidate, tier: Tier) -> dict[str, str]:
    """Environment of a candidate's process."""
    several = tier == "claim" and any(SEVERAL.search(source) for source in (task.source, candidate.source))
    return {} if several or task.device != "cuda" else ONE
