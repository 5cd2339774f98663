"""The patch of a model: drop-ins of its blocks in one package, and `apply`, which turns instances into them.

    patch/
      __init__.py      apply(model), remove(model): needs torch alone
      NAME.py          the drop-in of one group

An instance keeps its identity, weights, hooks and attributes: only its class changes.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from dvk.api.live_folder import FOLDER, placed
from dvk.api.network import applying
from dvk.api.network.reading import Reads

PACKAGE = "patch"
ALSO = " Make one: dvk optimize … --also '{name}={given}'"
"""A drop-in's advice for inputs of other sizes, which `dvk optimize --model` does not take."""
OTHERS = " Make a patch for such calls: dvk optimize --model … --input"


@dataclass(frozen=True)
class Patch:
    """The drop-in of a group: its text, the class that it stands for, and the configurations of instances that it was proved for."""

    name: str
    kind: str
    entry: str
    """Name of the drop-in's own copy of the class."""
    text: str
    configs: tuple[str, ...]
    """Keys by `applying.dvk_key`."""


@contextmanager
def dressed(modules: Sequence[nn.Module], kind: Any) -> Iterator[None]:
    """Turn these modules into instances of a drop-in's class meanwhile; what it prepared stays with them, for the next time."""
    were = [type(module) for module in modules]
    try:
        for module in modules:
            applying.dvk_dress(module, kind)
        yield
    finally:
        for module, before in zip(modules, were, strict=True):
            module.__class__ = before


def write(folder: Path, patches: Sequence[Patch], model: str, reads: Reads) -> Path:
    """Write the package in the place of an older one, none without patches; returns its folder."""
    package = folder / PACKAGE
    shutil.rmtree(package, ignore_errors=True)
    if not patches:
        return package
    package.mkdir(parents=True)
    for one in patches:
        # Weights are those of the model that is patched: nothing is read from a folder.
        text = placed(one.text, '""') if f"\n{FOLDER} = " in one.text else one.text
        text = text.replace(ALSO, OTHERS)
        (package / f"{one.name}.py").write_text(text, encoding="utf-8")
    (package / "__init__.py").write_text(_init(patches, model, reads), encoding="utf-8")
    return package


def load(package: Path) -> ModuleType:
    """Import a package that `write` wrote, under its own name."""
    name = f"dvk_patch_{abs(hash(str(package)))}"
    for known in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[known]
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def configs(drop_in: ModuleType, modules: Sequence[nn.Module], reads: Reads) -> tuple[str, ...]:
    """Return the keys of these modules by the `dvk_facts_key` of a drop-in."""
    return tuple(dict.fromkeys(applying.dvk_key(drop_in, one, reads) for one in modules))


def _init(patches: Sequence[Patch], model: str, reads: Reads) -> str:
    blocks = {
        one.name: {"class": one.kind, "entry": one.entry, "configs": list(one.configs)}
        for one in patches
    }
    table = json.dumps(blocks, indent=4)
    source = inspect.getsource(applying).partition('"""\n\n')[2]
    head = f'"""Kernels for {model}, written by dvk: `from {PACKAGE} import apply; apply(model)`."""\n\n'
    return f"{head}{source.rstrip()}\n\n\nREADS = {json.dumps(reads, indent=4)}\nBLOCKS = {table}\n"
