"""A model as files that another machine can open, which reaches nothing of this one's.

Those are the model's folder and, where it holds adapters, that of the model they belong to: `0/config.json`, `1/config.json`, …
What a training leaves beside a model's weights stays here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from dvk.interop.davinci.backbone import model_folder
from dvk.resources import resource

KINDS = ("nano", "hf", "davinci")
"""Of the backbones those that are a folder."""
ADAPTER, BASE = "adapter_config.json", "base_model_name_or_path"
SUFFIXES = (".safetensors", ".json", ".jinja", ".model", ".txt")
"""Weights, configuration, tokenizer."""
OLD = ".bin"
"""Weights where there are no others."""


def is_folder(spec: str) -> bool:
    """The spec stands for a model whose weights are here, or on the Hub."""
    return spec.partition(":")[0] in KINDS


def files(spec: str) -> Iterator[tuple[str, Path]]:
    """What to send of a model: (place, file).

    Args:
        spec: one of those that `is_folder` knows.

    Raises:
        UsageError, MachineError: there is no such model, or it cannot be downloaded.
    """
    folder: Path | None = _folder(spec)
    number = 0
    while folder is not None:
        found = sorted(path for path in folder.iterdir() if path.is_file())
        suffixes = SUFFIXES if any(path.suffix == SUFFIXES[0] for path in found) else (*SUFFIXES, OLD)
        yield from ((f"{number}/{path.name}", path) for path in found if path.suffix in suffixes)
        base = json.loads((folder / ADAPTER).read_text())[BASE] if (folder / ADAPTER).is_file() else None
        folder, number = _folder(f"hf:{base}") if base is not None else None, number + 1


def arrived(spec: str, top: Path) -> str:
    """The spec under which what `files` has told is opened where it lies under `top` now; adapters find their model there."""
    for folder in top.iterdir():
        adapters, base = folder / ADAPTER, top / str(int(folder.name) + 1)
        if adapters.is_file():
            adapters.write_text(json.dumps({**json.loads(adapters.read_text()), BASE: str(base)}))
    return f"{spec.partition(':')[0]}:{top / '0'}"


def _folder(spec: str) -> Path:
    kind, _, argument = spec.partition(":")
    if kind == "davinci":
        return model_folder(Path(argument).expanduser())
    if not argument:
        return resource("data", "nano")
    from dvk.backbone.loading import folder_of

    return folder_of(argument, SUFFIXES, OLD)
