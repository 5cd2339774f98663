"""A table of whole models: `python -m tests.api.measure_models [NAME …]` prints a row for each as it ends.

A row: the gain of the whole in one process with quick compositions, before any search; the blocks that were patched with their number
and share of the time, those that were left and why; the gain of the whole beside eager, with its interval, and beside torch.compile. With
`--train` a call is forward and backward.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from dvk import config as configuration
from dvk.api.network import LOOK, ModelRequest, ModelSource, run
from dvk.errors import DvkError
from tests.api.whole_models import MODELS, source_of

_CLIP: dict[str, Any] = {
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_hidden_layers": 8,
    "bos_token_id": 0,
}

WIDER: dict[str, dict[str, Any]] = {
    "llama": {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_hidden_layers": 8,
        "max_position_embeddings": 512,
    },
    "gpt2": {"n_embd": 768, "n_head": 12, "n_layer": 8, "n_positions": 512},
    "bert": {
        "max_position_embeddings": 512,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 8,
    },
    "vit": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "image_size": 224,
        "patch_size": 16,
        "num_hidden_layers": 8,
    },
    "mixtral": {
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_hidden_layers": 4,
    },
    "convnext": {"hidden_sizes": [96, 192], "depths": [3, 3], "image_size": 224},
    "t5": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_heads": 12, "num_layers": 6},
    "swin": {
        "image_size": 224,
        "patch_size": 4,
        "embed_dim": 96,
        "depths": [2, 2, 6, 2],
        "num_heads": [3, 6, 12, 24],
        "window_size": 7,
    },
    "timm_swin": {
        "img_size": 224,
        "embed_dim": 96,
        "depths": [2, 2, 6, 2],
        "num_heads": [3, 6, 12, 24],
    },
    "clip": {
        "text_config": {**_CLIP, "hidden_size": 512, "vocab_size": 128, "eos_token_id": 127},
        "vision_config": {**_CLIP, "hidden_size": 768, "image_size": 224, "patch_size": 16},
    },
    "whisper": {
        "d_model": 512,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048,
        "num_mel_bins": 80,
        "max_source_positions": 1500,
        "max_target_positions": 448,
    },
    "unet": {
        "sample_size": 64,
        "block_out_channels": [128, 256],
        "layers_per_block": 2,
        "norm_num_groups": 32,
    },
    "mamba": {"hidden_size": 768, "num_hidden_layers": 8, "state_size": 16},
}
"""What differs with `--wide`."""

_TEXT = "input_ids=int64[8,512]<128"
_IMAGES = "pixel_values=float32[32,3,224,224]"
BATCHES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("llama", "gpt2", "bert", "mixtral"), (_TEXT,)),
    "t5": (_TEXT, "decoder_input_ids=int64[8,128]<128"),
    **dict.fromkeys(("vit", "convnext"), (_IMAGES,)),
    "clip": ("input_ids=int64[32,64]<128", _IMAGES),
    "whisper": ("input_features=float32[4,80,3000]", "decoder_input_ids=int64[4,448]<128"),
    "unet": ("sample=float32[8,3,64,64]", "timestep=int64[8]<1000"),
}
"""Inputs with `--batch`, which keep a GPU busy; for the sizes of `--wide`."""


def measured(
    source: ModelSource, out: Path, budget_s: float, baselines: tuple[str, ...], train: bool
) -> dict[str, Any]:
    """Make one model faster; an error is a row, too."""
    config = configuration.load(None, (), {"optimize.budget_s": budget_s})
    request = ModelRequest(source=source, out=out, resume=True, baselines=baselines, train=train)
    try:
        return run(request, config)
    except DvkError as error:
        look = out / LOOK
        seen = json.loads(look.read_text()) if look.exists() else None
        return {"status": "error", "reason": error.message, "blocks": [], "quick_look": seen}


def row(name: str, found: dict[str, Any], seconds: float) -> str:
    """One line of the table."""
    patched = [
        f"{len(one['patched'])} {one['name']} ({one['share']:.0%})"
        for one in found["blocks"]
        if one["patched"]
    ]
    left = [f"{one['name']}: {one['why'][:60]}" for one in found["blocks"] if not one["patched"]][
        :3
    ]
    gain = (
        ""
        if not found.get("speedup")
        else (f"{found['speedup']:.2f} [{found['speedup_lo']:.2f}, {found['speedup_hi']:.2f}]")
    )
    over = (found.get("baselines") or {}).get("compile")
    compiled = f"{over['speedup']:.2f}" if over else ""
    look = (found.get("quick_look") or {}).get("timed")
    cells = [
        name,
        found["status"],
        f"{look['speedup']:.2f}" if look else "",
        ", ".join(patched),
        gain,
        compiled,
        f"{seconds:.0f} s",
        "; ".join(left) or str(found["reason"]),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--wide", action="store_true", help="larger configurations")
    parser.add_argument("--batch", action="store_true", help="batches as one trains with")
    parser.add_argument("--train", action="store_true", help="forward and backward")
    parser.add_argument("--compile", action="store_true", help="time torch.compile, too")
    parser.add_argument("--budget-s", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("runs/models"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    print(
        "| model | status | quick look | patched | gain | over torch.compile | took | left |\n|---|---|---|---|---|---|---|---|"
    )
    for name in given.names:
        source = replace(source_of(name, given.device, train=given.train), dtype=given.dtype)
        if given.wide:
            source = replace(source, settings={**source.settings, **WIDER.get(name, {})})
        if given.batch:
            source = replace(source, inputs=BATCHES[name])
        began = time.monotonic()
        baselines = ("compile",) if given.compile else ()
        found = measured(source, given.out / name, given.budget_s, baselines, given.train)
        print(row(name, found, time.monotonic() - began), flush=True)
        (given.out / f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
