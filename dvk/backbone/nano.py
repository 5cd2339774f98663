"""nano: a Qwen3 of 5 to 20 million parameters with its own tokenizer, initialised at random and trained by `dvk sft`.

It is an ordinary transformers folder plus `dvk.json`, which names the composer's compact dialect and the origin. The shipped
one is in `data/nano`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

import dvk
from dvk.backbone import Dialect
from dvk.backbone.hf import HfBackbone, write_folder
from dvk.backbone.loading import Loaded, load, pick_device
from dvk.backbone.tokenizer import END, PAD, train_tokenizer
from dvk.config import Config
from dvk.errors import DvkError, UsageError
from dvk.resources import resource


class NanoSize(NamedTuple):
    """Shape of a nano; groups of query heads share key heads, which keeps the cache small and decoding fast."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    """Width inside the gated MLP."""
    vocabulary: int = 4096
    """Most tokens of the tokenizer."""


DIALECTS = ("compact", "plan")
"""What a nano reads and writes: kernels as short texts, or plans that the composer carries out."""

PRESETS = {
    "tiny": NanoSize(2, 96, 3, 1, 32, 256, vocabulary=300),
    "5m": NanoSize(4, 256, 4, 2, 64, 1024),
    "12m": NanoSize(6, 384, 6, 2, 64, 1152),
    "17m": NanoSize(8, 384, 6, 2, 64, 1280),
}
"""By parameters: 0.2 (for tests), 5.0, 11.9 and 16.5 million."""


def open_nano(argument: str, config: Config, *, device: str | None = None) -> HfBackbone:
    """`nano`, the shipped one, or `nano:PATH`.

    Raises:
        UsageError: no nano ships with this version, or the folder holds no model with the compact dialect.
    """
    if argument:
        folder = Path(argument).expanduser()
    else:
        try:
            folder = resource("data", "nano")
        except DvkError:
            hint = "make one with `dvk sft` and open it as nano:FOLDER, or take another backbone, e.g. hf:NAME"
            raise UsageError("no nano checkpoint ships with this version of dvk", hint) from None
    loaded = load(str(folder), config.backbone, pick_device(device))
    if loaded.card.get("dialect") not in DIALECTS:
        raise UsageError(
            f"`{folder}` is not a nano: its dvk.json names neither the compact dialect nor that of plans",
            f"open it as hf:{folder}",
        )
    return HfBackbone(loaded, config.backbone, f"nano:{argument}" if argument else "nano")


def configuration(size: NanoSize, tokenizer: Any, positions: int) -> Qwen3Config:
    """The transformers configuration of a nano; embeddings are tied, the vocabulary is the tokenizer's."""
    ids = tokenizer.get_vocab()
    return Qwen3Config(
        vocab_size=len(ids),
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_size,
        tie_word_embeddings=True,
        max_position_embeddings=positions,
        pad_token_id=ids[PAD],
        eos_token_id=ids[END],
        bos_token_id=None,
    )


def fresh(
    texts: Iterable[str],
    settings: Config,
    *,
    size: str | NanoSize = "12m",
    vocabulary: int | None = None,
    positions: int = 2048,
    seed: int = 0,
    dialect: Dialect = "compact",
    provenance: dict[str, Any] | None = None,
    device: str | None = None,
) -> HfBackbone:
    """A nano with random weights and a tokenizer trained on `texts`.

    Args:
        texts: a sample of prompts and answers as in training; a few megabytes are enough.
        size: a name in `PRESETS`, or a shape.
        vocabulary: most tokens of the tokenizer; None: as `size` says.
        positions: longest sequence in tokens, prompt and answer together.
        seed: of the weights.
        dialect: what it reads and writes.
        provenance: kept in `dvk.json`: data recipe, seeds, quality and the like.

    Raises:
        UsageError: unknown size.
    """
    if isinstance(size, str) and size not in PRESETS:
        raise UsageError(f"unknown size of nano: `{size}`", f"choose one of {', '.join(PRESETS)}")
    shape = PRESETS[size] if isinstance(size, str) else size
    tokenizer = train_tokenizer(texts, vocabulary or shape.vocabulary, positions)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(
            configuration(shape, tokenizer, positions), dtype=torch.float32
        )
    # Servers' sampling defaults; without them `transformers serve` is greedy at every temperature, and keeps the 50 likeliest.
    model.generation_config.update(do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
    card = {
        "dialect": dialect,
        "dvk": dvk.__version__,
        "provenance": {"size": shape._asdict(), "seed": seed, **(provenance or {})},
    }
    return HfBackbone(
        Loaded(model.to(pick_device(device)), tokenizer, card), settings.backbone, "nano:fresh"
    )


def make(folder: Path, texts: Iterable[str], **how: Any) -> Path:
    """Write a fresh nano (`fresh` takes the keywords) to `folder`, which `nano:FOLDER` opens.

    Raises:
        RunFolderError: the folder exists.
    """
    made = fresh(texts, Config(), device="cpu", **how)
    write_folder(folder, made.model, made.tokenizer, made.card)
    return folder
