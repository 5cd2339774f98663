"""`dvk export RUN TARGET --merged`: LoRA adapters of a training merged into their base model, for servers that load whole weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dvk.backbone.loading import has_adapters, load, pick_device
from dvk.config import BackboneConfig
from dvk.errors import UsageError


def merge(source: Path, target: Path) -> dict[str, Any]:
    """Write the whole weights, tokenizer included; an existing target is refused.

    Args:
        source: run folder of `dvk train` or `dvk sft`, whose last checkpoint is taken, or a folder with adapters.
        target: a folder that `hf:TARGET` and other programs open.

    Raises:
        UsageError: no adapters there.
        RunFolderError: the target exists.
    """
    from dvk.backbone.hf import write_folder

    steps = sorted((source / "checkpoints").glob("step_*"))
    folder = steps[-1] if steps else source
    if not has_adapters(str(folder)):
        whole = (folder / "config.json").is_file()
        raise UsageError(
            f"no adapters to merge in `{folder}`",
            "its weights are whole: use it as it is"
            if whole
            else "give a run folder of `dvk train`, or a folder with adapter_config.json",
        )
    loaded = load(str(folder), BackboneConfig(), pick_device("cpu"))
    write_folder(target, loaded.model.merge_and_unload(), loaded.tokenizer, loaded.card)
    return {"target": str(target), "form": "merged", "name": target.name, "source": str(folder)}
