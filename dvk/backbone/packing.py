"""A model as self-contained files that another machine can open.

These are the model's folder and, if it holds adapters, that of their base model: `0/config.json`, `1/config.json`, …
Other files that a training writes next to a model's weights stay here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from dvk.errors import UsageError
from dvk.resources import resource

KINDS = ("nano", "hf", "davinci")
"""Backbones whose models are folders."""
ADAPTER, BASE = "adapter_config.json", "base_model_name_or_path"
SUFFIXES = (".safetensors", ".json", ".jinja", ".model", ".txt")
"""Weights, configuration, tokenizer."""
OLD = ".bin"
"""Weights, if there are no others."""


def is_folder(spec: str) -> bool:
    """Whether the spec stands for a model whose weights are local, or on the Hub."""
    return spec.partition(":")[0] in KINDS


def files(spec: str) -> Iterator[tuple[str, Path]]:
    """Files to send of a model: (place, file).

    Args:
        spec: one of those that `is_folder` knows.

    Raises:
        UsageError, MachineError: there is no such model, or it cannot be downloaded.
    """
    folder: Path | None = _folder(spec)
    number = 0
    while folder is not None:
        result = sorted(path for path in folder.iterdir() if path.is_file())
        suffixes = (
            SUFFIXES if any(path.suffix == SUFFIXES[0] for path in result) else (*SUFFIXES, OLD)
        )
        yield from ((f"{number}/{path.name}", path) for path in result if path.suffix in suffixes)
        base = (
            json.loads((folder / ADAPTER).read_text())[BASE]
            if (folder / ADAPTER).is_file()
            else None
        )
        folder, number = _folder(f"hf:{base}") if base is not None else None, number + 1


def arrived(spec: str, top: Path) -> str:
    """The spec that opens the files of `files` copied to `top`; adapters find their base model there."""
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


PLACES = ("", "huggingface", "actor/huggingface")
"""Subfolders of a folder that may hold the model."""

CONFIGS = ("config.json", "adapter_config.json")


def model_folder(path: Path) -> Path:
    """The model's own folder in a checkpoint, or in a run's folder its latest one.

    Raises:
        UsageError: there is none, or only the shards of one.
    """
    if not path.is_dir():
        raise UsageError(f"no such folder: `{path}`", "give a downloaded daVinci-kernel checkpoint")
    steps = sorted(
        (int(match[1]), step)
        for step in path.iterdir()
        if (match := re.fullmatch(r"global_step_(\d+)", step.name))
    )
    for top in (path, *(step for _, step in reversed(steps))):
        for place in PLACES:
            if any((top / place / name).is_file() for name in CONFIGS):
                return top / place
    if any(path.rglob("model_world_size_*.pt")):
        raise UsageError(
            f"`{path}` holds the shards of a training run",
            "merge them with verl's model merger, into actor/huggingface",
        )
    raise UsageError(f"no model in `{path}`", "give the folder that holds config.json")
