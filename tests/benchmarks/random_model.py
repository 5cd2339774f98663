"""Models of Qwen3's shapes with random weights: in memory in seconds, or as a folder that `hf:FOLDER` opens.

python -m tests.benchmarks.random_model 8b /dev/shm/8b    # 16.4 GB, on a CPU
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from dvk.agents.dialects import chat
from dvk.backbone.hf import write_folder
from dvk.backbone.tokenizer import train_tokenizer
from dvk.resources import resource

SHAPES: dict[str, dict[str, int]] = {
    "8b": {
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "intermediate_size": 12288,
    },
    "14b": {
        "hidden_size": 5120,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "intermediate_size": 17408,
    },
    "tiny": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 1024,
        "max_position_embeddings": 4096,
    },
}
"""Of Qwen3-8B and Qwen3-14B (their config.json on the Hub), and one for a CPU."""
BLOCK = 1 << 24
"""Random numbers that a folder's weights repeat: drawing 8 billion takes a CPU minutes."""


def configuration(shape: str, **changes: Any) -> Any:
    """The transformers configuration of a shape."""
    from transformers import Qwen3Config

    common = {
        "vocab_size": 151_936,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40_960,
        "tie_word_embeddings": False,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    return Qwen3Config(**{**common, **SHAPES[shape], **changes})


def in_memory(shape: str, device: str, **changes: Any) -> Any:
    """A model in bfloat16, made on its device."""
    from transformers import AutoModelForCausalLM

    with torch.device(device):
        made = AutoModelForCausalLM.from_config(
            configuration(shape, **changes), dtype=torch.bfloat16
        )
    return made.eval()


def tokenizer(positions: int = 40_960) -> Any:
    """A tokenizer of prompts, of fewer tokens than the vocabulary has: a real one would be a download."""
    texts = [Path(chat.__file__).read_text(), *_sources()]
    return train_tokenizer(texts, 1024, positions)


def _sources() -> list[str]:
    return [
        path.read_text() for path in sorted(resource("data", "tasks", "examples").glob("*.py"))[:20]
    ]


@torch.no_grad()
def write(shape: str, folder: Path, **changes: Any) -> Path:
    """Write such a model with its tokenizer."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(
            configuration(shape, **changes), dtype=torch.bfloat16
        )
    rotary = configuration(shape, **changes)
    made = made.to_empty(device="cpu")
    made.model.rotary_emb = type(made.model.rotary_emb)(config=rotary)  # its buffer is no weight
    block = (0.02 * torch.randn(BLOCK)).bfloat16()
    for number, weight in enumerate(made.parameters()):
        if weight.dim() == 1:
            weight.fill_(1.0)
            continue
        flat, start = weight.view(-1), 7919 * number % BLOCK
        rolled = block.roll(start)
        for first in range(0, len(flat), BLOCK):
            part = flat[first : first + BLOCK]
            part.copy_(rolled[: len(part)])
    write_folder(folder, made, tokenizer(), {})
    return folder


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    print(write(given.shape, given.folder))


if __name__ == "__main__":
    main()
