"""A launch plan recorded and replayed."""

from __future__ import annotations

import torch

from dvk.harness.launch_plans.replay import Replay
from tests.harness.launch_plans.recording import REFERENCE, recorded


def replay(candidate: str, *args: torch.Tensor, source: str = REFERENCE) -> Replay:
    recording = recorded(candidate, *args, source=source)
    return Replay(recording, recording.plans[0], "cpu")
