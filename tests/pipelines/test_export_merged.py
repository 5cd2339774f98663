"""`dvk export --merged`: whole weights that compute what base model and adapters compute together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dvk.backbone import ScoringRow, open_backbone
from dvk.backbone.hf import HfBackbone, write_folder
from dvk.backbone.loading import has_adapters
from dvk.backbone.tokenizer import train_tokenizer
from dvk.config import BackboneConfig, Config
from dvk.errors import RunFolderError, UsageError
from dvk.pipelines.export.merged import merge
from tests.learn.tiny import tiny


def test_merged_weights_score_as_the_adapters_do(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["some text"] * 3, 270, 512)
    write_folder(tmp_path / "base", tiny(len(tokenizer)), tokenizer, {"dialect": "chat"})
    lora = Config(backbone=BackboneConfig(lora_rank=4))
    trained = open_backbone(f"hf:{tmp_path / 'base'}", lora, device="cpu")
    assert isinstance(trained, HfBackbone)
    with torch.no_grad():
        for name, parameter in trained.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.2)
    for step in ("step_000001", "step_000002"):
        trained.save(tmp_path / "run" / "checkpoints" / step)
    told = merge(tmp_path / "run", tmp_path / "whole")
    assert told["source"].endswith("step_000002") and not has_adapters(told["target"])
    whole = open_backbone(f"hf:{tmp_path / 'whole'}", device="cpu")
    assert isinstance(whole, HfBackbone) and whole.card == {"dialect": "chat"}
    row = [ScoringRow((5, 6), (7, 8, 9))]
    with torch.no_grad():
        assert torch.allclose(whole.logprobs(row).values, trained.logprobs(row).values, atol=1e-5)
        with trained.model.disable_adapter():
            base = trained.logprobs(row).values
        assert not torch.allclose(whole.logprobs(row).values, base, atol=1e-3)
    with pytest.raises(RunFolderError):
        merge(tmp_path / "run", tmp_path / "whole")
    with pytest.raises(UsageError, match="no adapters to merge"):
        merge(tmp_path / "base", tmp_path / "other")
