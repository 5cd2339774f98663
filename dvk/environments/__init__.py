"""Environments for other trainers, one thin file each, over one scorer. [The page](README.md) has the lines to type.

    trl         reward function and environment of TRL's GRPOTrainer
    verl        `custom_reward_function` of verl
    verifiers   taskset and environment of verifiers (prime-rl)
    openenv     server and client of OpenEnv
    skyrl       text environment of SkyRL-Gym
    episode     the turns of one task, which the last three and TRL's environment play

A trainer's package is imported by its own file only. The judge's processes stay between calls, and end with the process.

    DVK_SCORE_URL      a `dvk serve` that judges; without it this machine judges
    DVK_SCORE_CONFIG   settings, a TOML file as for `--config`
"""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path

from dvk import config as configuration
from dvk.api.scoring import Scorer
from dvk.environments.over_http import HttpScorer

CONFIG = "DVK_SCORE_CONFIG"
URL = "DVK_SCORE_URL"
_lock = threading.Lock()
_scorers: dict[int, Scorer | HttpScorer] = {}
"""By process: a fork cannot use its parent's."""


def shared_scorer() -> Scorer | HttpScorer:
    """This process's scorer, made at the first call.

    Raises:
        UsageError: the settings are wrong.
    """
    with _lock:
        if os.getpid() not in _scorers:
            file, url = os.environ.get(CONFIG), os.environ.get(URL)
            config = configuration.load(Path(file) if file else None, ())
            scorer = HttpScorer(url, config) if url else Scorer(config=config)
            _scorers[os.getpid()] = scorer
            atexit.register(scorer.close)
        return _scorers[os.getpid()]
