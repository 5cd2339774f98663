"""The result of `dvk.optimize_model`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from dvk.api.network import patching
from dvk.errors import UsageError


@dataclass(frozen=True)
class ModelResult:
    """What was found for a whole model.

    Attributes:
        summary: what `dvk optimize --model … --json` prints.
    """

    summary: dict[str, Any] = field(repr=False)

    @property
    def status(self) -> str:
        """`faster`, `no_speedup`, `too_noisy` or `failed` (every patch made the outputs wrong)."""
        return str(self.summary["status"])

    @property
    def faster(self) -> bool:
        """Whether a speedup of the whole model over eager was proved."""
        return self.status == "faster"

    @property
    def speedup(self) -> float:
        """Eager time / time of the patched model; 1.0 if none was proved."""
        return float(self.summary["speedup"]) if self.faster else 1.0

    @property
    def run(self) -> Path:
        """The run folder."""
        return Path(self.summary["run"])

    def apply(self, model: nn.Module, quiet: bool = True) -> nn.Module:
        """Patch a model in place and return it; one without a proved patch is returned as it is."""
        if self.summary["patch"] is None:
            return model
        return patching.load(Path(self.summary["patch"])).apply(model, quiet=quiet)

    def save(self, folder: str | Path) -> Path:
        """Copy the package `patch` into a folder: `from patch import apply` then works there, with torch alone.

        Raises:
            UsageError: no patch was proved.
        """
        if self.summary["patch"] is None:
            raise UsageError(
                f"there is no patch to save: {self.summary['reason']}",
                "search for longer with budget_s=600",
            )
        place = Path(folder) / patching.PACKAGE
        shutil.copytree(self.summary["patch"], place, dirs_exist_ok=True)
        return place

    def __str__(self) -> str:
        from dvk.api.network.report import headline

        return headline(self.summary)
