"""nano's folder is an ordinary transformers folder; its tokenizer loses nothing and keeps digits and lines apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dvk.backbone import nano, open_backbone
from dvk.backbone.hf import HfBackbone
from dvk.backbone.tokenizer import train_tokenizer
from dvk.config import Config
from dvk.errors import UsageError
from tests.backbone.conftest import TEXTS


def test_the_folder_opens_with_transformers(nano_folder: Path) -> None:
    tokenizer, model = (
        AutoTokenizer.from_pretrained(nano_folder),
        AutoModelForCausalLM.from_pretrained(nano_folder),
    )
    assert model.config.model_type == "qwen3" and model.config.tie_word_embeddings
    assert model.config.eos_token_id == tokenizer.eos_token_id and tokenizer.chat_template
    assert len(tokenizer) == model.config.vocab_size
    card = json.loads((nano_folder / "dvk.json").read_text())
    assert card["dialect"] == "compact" and card["provenance"]["seed"] == 0
    with torch.no_grad():
        assert model(torch.tensor([[6, 7, 8]])).logits.shape == (1, 3, len(tokenizer))


def test_a_seed_repeats_the_weights(tmp_path: Path) -> None:
    how = {"size": "tiny", "vocabulary": 300, "positions": 64}
    folders = [
        nano.make(tmp_path / name, TEXTS, seed=seed, **how) for name, seed in zip("abc", (3, 3, 4))
    ]
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize("size", nano.PRESETS)
def test_presets_have_the_size_of_their_name(size: str) -> None:
    class Words:
        def get_vocab(self) -> dict[str, int]:
            return {"<|pad|>": 0, "<|end|>": 1, **{str(i): i for i in range(2, 4096)}}

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            nano.configuration(nano.PRESETS[size], Words(), 2048)
        )
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    assert millions == pytest.approx(
        0.59 if size == "tiny" else float(size.removesuffix("m")), rel=0.05
    )


def test_the_tokenizer_loses_nothing(shared_nano: HfBackbone) -> None:
    for text in (
        "",
        "a  b\t\n\n c\r\n",
        "naïve — ∑ 漢字 🙂 \x00",
        "x[128] = 0.5e-3;",
        " leading",
        "v10 v10\nv10",
    ):
        ids = shared_nano.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert shared_nano.tokenizer.decode(ids) == text


def test_digits_and_lines_stay_apart() -> None:
    tokenizer = train_tokenizer(["v12 = load(x10, 128)\nv13 = load(x10, 128)\n"] * 50, 600, 64)
    for token in tokenizer.get_vocab():
        if token not in tokenizer.all_special_tokens:
            assert sum(c.isdigit() for c in token) <= 1 and not (
                len(token) > 1 and any(c.isdigit() for c in token)
            ), token
            assert "Ċ" not in token.rstrip("Ċ"), f"a token that goes on after a newline: {token}"
    assert len(tokenizer("v99 = load(x77, 640)\n")["input_ids"]) < 17, (
        "phrases that span spaces are learned"
    )
    with pytest.raises(ValueError, match="at least"):
        train_tokenizer(["a"], 100, 64)


def test_unknown_sizes_and_no_checkpoint_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="unknown size"):
        nano.fresh(TEXTS, Config(), size="900m")
    monkeypatch.setattr("dvk.resources._PACKAGE", tmp_path / "dvk")
    with pytest.raises(UsageError, match="no nano checkpoint") as caught:
        open_backbone("nano", device="cpu")
    assert "dvk sft" in caught.value.hint
