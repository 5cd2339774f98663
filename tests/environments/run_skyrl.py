"""SkyRL-Gym makes and steps the environment. Prints the steps."""

from __future__ import annotations

import json

import skyrl_gym

import dvk.environments.skyrl  # noqa: F401 - it registers the environment
from tests.environments.answers import RIGHT, TASK, WRONG

ROW = {"reward_spec": {"method": "rule", "ground_truth": TASK}, "extra_info": {"split": "heldout"}}

if __name__ == "__main__":
    env = skyrl_gym.make("dvk", env_config={}, extras={**ROW, "max_turns": 2})
    env.init([{"role": "user", "content": "question"}])
    steps = [env.step(text) for text in (WRONG, RIGHT)]
    print(json.dumps({"steps": steps, "metrics": env.get_metrics()}))
