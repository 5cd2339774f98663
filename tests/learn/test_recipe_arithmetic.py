"""The memory and time that the recipes' pages state, worked out again from the models' shapes and the recipes' own settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from dvk import config
from dvk.cli import recipes
from dvk.config import Config

README = re.sub(
    r"\s+", " ", (Path(__file__).resolve().parents[2] / "dvk" / "learn" / "README.md").read_text()
)
QUESTION, ANSWER = 6000, 2000
SAMPLED_S = 3000
"""Tokens a second of vLLM, assumed."""
LEARNED_S = {"qwen3-8b": 3088, "qwen3-14b": 1982}
"""Tokens a second of an update with its scoring: measured at rows of 32,768 tokens (`tests.benchmarks.large`)."""
FITTED_S = 3880
"""The same of an 8 B without scoring, as in `dvk sft fit`."""
GPU, PACK = 80e9, 32768
SHARED = 0.55
"""Share of the GPU's memory of a server that has it together with the learner."""


@dataclass
class Shape:
    """A model by its configuration."""

    hidden: int
    layers: int
    heads: int
    inner: int

    @cached_property
    def model(self) -> torch.nn.Module:
        """With all weights on the meta device: no memory."""
        made = Qwen3Config(
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=8,
            head_dim=128,
            intermediate_size=self.inner,
            vocab_size=151936,
            tie_word_embeddings=False,
        )
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(made)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def lora(self) -> int:
        """Parameters of adapters on all linear layers but the head."""
        linear = [
            m
            for name, m in self.model.named_modules()
            if isinstance(m, torch.nn.Linear) and name != "lm_head"
        ]
        return sum(16 * (m.in_features + m.out_features) for m in linear)

    @property
    def cache(self) -> int:
        """Bytes of one token's keys and values."""
        return self.layers * 2 * 8 * 128 * 2

    @property
    def inputs(self) -> int:
        """Bytes of the layer inputs of a pack, which are kept for the backward pass."""
        return PACK * self.hidden * self.layers * 2

    @property
    def layer(self) -> int:
        """Bytes of one layer that is computed again: four inner and, with norms and gradients in float32, twenty outer vectors a token."""
        return PACK * (4 * self.inner + 20 * self.hidden) * 2

    @property
    def update(self) -> float:
        return 2 * self.parameters + 16 * self.lora + self.inputs + self.layer


SHAPES = Shape(4096, 36, 32, 12288), Shape(5120, 40, 40, 17408)


def settings(command: str, name: str) -> Config:
    return config.load(recipe=recipes.read(command, name))


def answers(given: Config) -> int:
    """The policy's answers to one task."""
    rollout = given.rollout
    return (rollout.schemes + rollout.null_scheme) * rollout.rollouts * rollout.turns


def test_memory_of_the_models() -> None:
    rows = {
        "parameters": [f"{s.parameters / 1e9:.2f} billion" for s in SHAPES],
        "weights in bfloat16": [f"{2 * s.parameters / 1e9:.1f} GB" for s in SHAPES],
        "LoRA of rank 16": [f"{s.lora / 1e6:.1f} million" for s in SHAPES],
        "LoRA with gradients and Adam, 16 bytes each": [
            f"{16 * s.lora / 1e9:.2f} GB" for s in SHAPES
        ],
        "cache of one token, bfloat16": [f"{s.cache:,} bytes" for s in SHAPES],
        "layer inputs of a pack of 32,768 tokens": [f"{s.inputs / 1e9:.1f} GB" for s in SHAPES],
        "one layer computed again, its widest moment": [f"{s.layer / 1e9:.1f} GB" for s in SHAPES],
        "the learner's update in all": [f"{s.update / 1e9:.1f} GB" for s in SHAPES],
    }
    for name, cells in rows.items():
        assert f"| {name} | {cells[0]} | {cells[1]} |" in README, (name, cells)
    for shape, measured in zip(SHAPES, (35.3, 54.7), strict=True):
        assert f"{measured} GB" in README
        assert shape.update == pytest.approx(measured * 1e9, rel=0.02), "arithmetic and measurement"


@pytest.mark.parametrize("name", ["qwen3-8b", "davinci-continue"])
def test_one_gpu_holds_server_and_learner(name: str) -> None:
    given, shape = settings("train", name), SHAPES[0]
    assert given.learning.pack_tokens * given.learning.micro_packs == PACK
    assert given.served.arguments == f"--gpu-memory-utilization {SHARED} --max-model-len {PACK}"
    assert given.learning.gradient_checkpointing and given.backbone.lora_rank == 16
    share = SHARED * GPU
    tokens = (share - 2 * shape.parameters - 2.5e9) / shape.cache
    assert f"{SHARED:.0%} of 80 GB".replace("%", " %") in README
    assert f"a cache of {round(tokens, -4):,.0f} tokens" in README and 5 * PACK <= tokens
    kept = 2 * shape.parameters + 16 * shape.lora
    assert f"The learner keeps {kept / 1e9:.1f} GB" in README
    assert share + kept < 0.8 * GPU, "sampling: the rest is the judge's"
    assert shape.update < 0.5 * GPU, "an update, while the server sleeps"
    # Prompt and answer fit the server's context.
    assert given.agents.prompt_tokens + given.rollout.policy_tokens <= PACK


def test_four_gpus_hold_a_14b() -> None:
    given, shape = settings("train", "qwen3-14b"), SHAPES[1]
    assert given.served.gpus == "2,3"
    assert given.served.arguments == f"--tensor-parallel-size 2 --max-model-len {PACK}"
    tokens = (2 * (0.9 * GPU - 2.5e9) - 2 * shape.parameters) / shape.cache
    assert f"Its cache takes {5000 * int(tokens / 5000):,} tokens" in README and tokens > 20 * PACK
    assert shape.update < 0.75 * GPU and shape.heads % 2 == 0


@pytest.mark.parametrize(("name", "learners", "steps"), [("qwen3-8b", 1, 30), ("qwen3-14b", 2, 20)])
def test_time_of_a_step(name: str, learners: int, steps: int) -> None:
    given = settings("train", name)
    number = given.train.tasks_per_step * answers(given)
    sampling = number * ANSWER / SAMPLED_S
    learning = number * (QUESTION + ANSWER) / (LEARNED_S[name] * learners)
    assert f"{LEARNED_S[name]:,}" in README
    assert (
        f"plays {given.train.tasks_per_step} tasks in {number} answers: {sampling:.0f} s of sampling, "
        f"{learning:.0f} s of learning. {steps} steps take {steps * (sampling + learning) / 3600:.1f} hours"
    ) in README


def test_cost_of_a_teacher() -> None:
    given = settings("sft", "teacher")
    each, tasks = answers(given), given.collect.num_played
    read, written = tasks * each * QUESTION / 1e6, tasks * each * ANSWER / 1e6
    assert f"plays {tasks} generated tasks, {each} answers each" in README
    assert (
        f"{tasks * each:,} answers read {read:.1f} million tokens and write {written:.1f} million: "
        f"{3 * read + 15 * written:.0f} USD at 3 and 15 USD a million"
    ) in README
    hours = 0.6 * tasks * each * (QUESTION + ANSWER) * given.fit.epochs / FITTED_S / 3600
    assert f"in {given.fit.epochs:.0f} passes takes {hours:.1f} hours" in README
