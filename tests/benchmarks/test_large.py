"""The measurement of large models, scaled down: the same functions on a CPU, with two layers and rows of 1,024 tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dvk.backbone import open_backbone
from dvk.config import Config, changed
from tests.benchmarks import large, random_model

PROMPT, ANSWER = 768, 256


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements of a tensor that an operator returned."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.most = max(self.most, *sizes, 0)
        return out


@pytest.mark.slow
def test_update_and_answers_hold_nothing_of_the_size_of_a_square_of_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask of 32,768² is 1 GB, and logits of a row are 10 GB."""
    monkeypatch.setattr("dvk.learn.scoring.LOGITS", 64 * 1024)
    out = tmp_path / "figures"
    with LargestTensor() as seen:
        large.main(
            f"--shape tiny --prompt {PROMPT} --answer {ANSWER} --rows 2 --questions 1 --writes 12 "
            f"--parts update answers again --out {out}".split()
        )
    assert PROMPT * 64 < seen.most < PROMPT**2 // 2
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        if "part" in line:
            found[line["part"]] = line
    assert found["update"]["rows"] == 2 and found["update"]["kept"] == 1.0
    assert found["update"]["grad_norm"] > 0 and found["update"]["row_tokens"] == PROMPT + ANSWER
    assert found["answers"]["answers"] == 4 and found["answers"]["tokens"] <= 4 * 12
    assert found["again"]["kl_nats"] >= 0
    assert [line["phase"] for line in lines if "phase" in line] == ["scored", "learned"] * 2


def test_a_written_folder_is_opened_with_fresh_adapters(tmp_path: Path) -> None:
    folder = random_model.write("tiny", tmp_path / "model")
    config = changed(Config(), {"backbone.lora_rank": 4, "backbone.dtype": "bfloat16"})
    opened = open_backbone(f"hf:{folder}", config, device="cpu")
    made = random_model.in_memory("tiny", "cpu")
    base = opened.model.get_base_model()  # type: ignore[attr-defined]
    assert sum(p.numel() for n, p in base.named_parameters() if "lora" not in n) == sum(
        p.numel() for p in made.parameters()
    )
    rotary = base.model.rotary_emb.inv_freq
    torch.testing.assert_close(rotary, made.model.rotary_emb.inv_freq.to(rotary.dtype))
