"""verl's own reward manager and configuration with `compute_score`. Prints what it makes of a right, a wrong and an unreadable answer."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import numpy as np
import torch
import verl.trainer
from hydra import compose, initialize_config_dir
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager

from dvk.backbone.tokenizer import train_tokenizer
from dvk.environments import verl as adapter
from tests.environments.answers import RIGHT, TASK, WRONG

ROW = {"data_source": "dvk_heldout", "extra_info": {"split": "heldout"}}


async def main() -> None:
    place = Path(verl.trainer.__file__).parent / "config"
    with initialize_config_dir(str(place), version_base=None):
        words = [f"reward.custom_reward_function.path={adapter.__file__}"]
        config = compose(
            "ppo_trainer", [*words, "reward.custom_reward_function.name=compute_score"]
        )
    tokenizer = train_tokenizer([RIGHT, TASK], 512, 512)
    manager = load_reward_manager(config, tokenizer)
    found = []
    for text in (RIGHT, WRONG, "I cannot."):
        tokens = torch.tensor([tokenizer(text)["input_ids"]])
        row = {**ROW, "reward_model": {"ground_truth": TASK, "style": "rule"}}
        named = {key: np.array([value], dtype=object) for key, value in row.items()}
        data = DataProto.from_dict(
            {"responses": tokens, "attention_mask": torch.ones_like(tokens)}, non_tensors=named
        )
        found.append(await manager.run_single(data))
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
