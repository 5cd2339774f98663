"""Rewards for other trainers: thin functions over `dvk.Scorer`, one file a trainer. None of the trainers is imported here.

    trl    a reward function of GRPOTrainer and RLOOTrainer
    verl   `custom_reward_function` of verl

The judge's processes stay between calls, and end with the process. Settings come from the environment variable DVK_SCORE_CONFIG, a
TOML file as for `--config`.
"""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path

from dvk import config as configuration
from dvk.api.scoring import Scorer

CONFIG = "DVK_SCORE_CONFIG"
_lock = threading.Lock()
_scorers: dict[int, Scorer] = {}
"""By process: a fork cannot use its parent's."""


def shared_scorer() -> Scorer:
    """This process's scorer, made at the first call.

    Raises:
        UsageError: the settings are wrong.
    """
    with _lock:
        if os.getpid() not in _scorers:
            file = os.environ.get(CONFIG)
            config = configuration.load(Path(file) if file else None, ())
            _scorers[os.getpid()] = scorer = Scorer(config=config)
            atexit.register(scorer.close)
        return _scorers[os.getpid()]
