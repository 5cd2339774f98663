"""A `dvk optimize` request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class OptimizeRequest:
    """The command line's request."""

    spec: str
    inputs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other sets of inputs, see `dvk.tasks.extra_inputs`."""
    dynamic: tuple[str, ...] = ()
    """Inputs with ranges of sizes, see `dvk.tasks.dynamic`."""
    init: tuple[str, ...] = ()
    eval_mode: bool = False
    train: bool = False
    """A call is forward and backward."""
    dtype: str | None = None
    autocast: str | None = None
    """Calls are under torch.autocast to this type."""
    device: str | None = None
    backend: str = "auto"
    strategy: str = "auto"
    baselines: tuple[str, ...] = ()
    library: Path | None = None
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()
    quiet: bool = False
    backbone: str | None = None
    seeds: tuple[Path, ...] = ()
    """Files with candidates to judge first and to improve."""
    davinci: Path | None = None
    """A daVinci-kernel checkpoint, instead of `backbone` and `library`."""
