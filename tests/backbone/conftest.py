"""Tiny models made on the fly, once a session: a nano, and random models of other architectures with their own tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.backbone import nano
from dvk.backbone.hf import HfBackbone, write_folder
from dvk.backbone.loading import Loaded
from dvk.backbone.tokenizer import train_tokenizer
from dvk.config import Config

TEXTS = [
    "x0: float32[s0,s1] = input\nv0 = aten.relu.default(x0)\nv1 = aten.mul.Tensor(v0, 2)\n",
    "def run(x0, p0):\n    y = empty(s0, s1)\n    k0[grid(n, 1024)](x0, p0, y, n)\n    return y\n",
] * 20


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def sharpened(model: Any, seed: int = 0) -> Any:
    """Random weights large enough that the logits differ: with a fresh model's every token is about as likely."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
            else:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


@pytest.fixture(scope="session")
def nano_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A nano on disk; never written to."""
    made = nano.fresh(TEXTS, Config(), size="tiny", vocabulary=400, positions=256, device="cpu")
    folder = tmp_path_factory.mktemp("models") / "nano"
    write_folder(folder, sharpened(made.model), made.tokenizer, made.card)
    return folder


@pytest.fixture(scope="session")
def shared_nano(nano_folder: Path) -> HfBackbone:
    """That nano, opened; its weights are not to be changed."""
    return nano.open_nano(str(nano_folder), Config(), device="cpu")


SHAPE = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}


@pytest.fixture(scope="session")
def make_hf() -> Callable[..., HfBackbone]:
    """`make_hf("llama", rope_parameters=…)`: a random model of that architecture."""
    tokenizer = train_tokenizer(TEXTS, 300, 128)

    def make(kind: str, settings: Config | None = None, **changes: Any) -> HfBackbone:
        from transformers import AutoConfig, AutoModelForCausalLM

        shape = SHAPE | {"vocab_size": len(tokenizer)} | changes
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(kind, **shape), dtype=torch.float32
        ).eval()
        return HfBackbone(
            Loaded(sharpened(model), tokenizer, {}), (settings or Config()).backbone, f"hf:{kind}"
        )

    return make
