"""Does the path for real checkpoints fit one GPU? A LoRA step and generation with a model of Qwen3-8B's shape and random weights.

    python -m tests.benchmarks.large                        # needs about 40 GB of GPU memory
    python -m tests.benchmarks.large --layers 2 --width 64  # the same on a small machine

Prints one JSON object: seconds, tokens a second and the most memory held, for learning and for sampling.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from typing import Any

import torch

from dvk.backbone import Sampling, hf
from dvk.backbone.hf import HfBackbone
from dvk.backbone.loading import Loaded, new_adapters
from dvk.backbone.tokenizer import train_tokenizer
from dvk.config import Config
from dvk.learn.learner import Learner
from dvk.learn.packs import lay_out
from dvk.learn.rows import TrainingRow

VOCABULARY = 151_936
"""Qwen3-8B's, as are the other numbers (its config.json on the Hub)."""


def model(layers: int, width: int, device: str) -> Any:
    """Qwen3-8B's configuration with random weights in bfloat16."""
    from transformers import AutoModelForCausalLM, Qwen3Config

    heads = max(4, width // 128)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 4,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=False,
        eos_token_id=151_645,
        pad_token_id=151_643,
        rope_theta=1_000_000.0,
    )
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def used(device: str) -> float:
    """Most GPU memory held since the last call, GB."""
    if device != "cuda":
        return 0.0
    torch.cuda.synchronize()
    most = torch.cuda.max_memory_allocated() / 1e9
    torch.cuda.reset_peak_memory_stats()
    return round(most, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--pack", type=int, default=4096, help="tokens of a pack")
    parser.add_argument("--batch", type=int, default=65_536, help="tokens of a step")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--answers", type=int, default=64, help="sampled at once")
    parser.add_argument("--answer", type=int, default=512, help="tokens of each")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = Config.model_validate(
        {
            "learning": {
                "gradient_checkpointing": True,
                "micro_packs": 1,
                "pack_tokens": asked.pack,
                "batch_tokens": asked.batch,
                "rate": 1e-4,
            }
        }
    )
    hf.SLOTS = asked.answers
    began = time.perf_counter()
    base = new_adapters(model(asked.layers, asked.width, device), asked.rank)
    tokenizer = train_tokenizer(["def forward(self, x): return x"] * 50, 400, 40_960)
    backbone = HfBackbone(Loaded(base, tokenizer, {}), config.backbone, "random")
    found: dict[str, Any] = {
        "parameters": sum(p.numel() for p in base.parameters()),
        "trained": sum(p.numel() for p in backbone.parameters()),
        "built_s": round(time.perf_counter() - began, 1),
        "weights_gb": used(device),
    }

    draw = random.Random(0)
    ids = [draw.randrange(400) for _ in range(asked.pack)]
    row = TrainingRow.answer(ids[: asked.pack // 4], ids[asked.pack // 4 :])
    packs = [lay_out([[row]], asked.pack) for _ in range(max(1, asked.batch // asked.pack))]
    learner = Learner(base, config.learning, asked.steps)
    seconds, losses = [], []
    for _ in range(asked.steps):
        began = time.perf_counter()
        losses.append(round(learner.step(packs)["loss"], 3))
        seconds.append(round(time.perf_counter() - began, 2))
    found["learning"] = {
        "step_s": seconds,
        "tokens_per_s": round(asked.batch / min(seconds)),
        "loss": losses,
        "memory_gb": used(device),
    }

    base.eval()
    prompts = [tuple(draw.randrange(400) for _ in range(1024)) for _ in range(asked.answers)]
    backbone.complete(
        prompts, Sampling(max_tokens=8, temperature=1.0, seed=0)
    )  # captures and compiles
    began = time.perf_counter()
    answers = backbone.complete(prompts, Sampling(max_tokens=asked.answer, temperature=1.0, seed=1))
    took = time.perf_counter() - began
    written = sum(len(a.tokens.completion) for a in answers if a.tokens is not None)
    found["sampling"] = {
        "answers": asked.answers,
        "tokens": written,
        "s": round(took, 1),
        "tokens_per_s": round(written / took),
        "memory_gb": used(device),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
