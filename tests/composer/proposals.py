"""Plans that recipes propose for small modules."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from dvk.composer import RECIPES, applicable
from tests.composer.programs import capture

REWRITES = {name for name, recipe in RECIPES.items() if recipe.rewrite is not None}


def proposed(model: nn.Module | Callable[..., torch.Tensor], *args: torch.Tensor) -> set[str]:
    """Graph rewrites that apply."""
    return set(applicable(capture(model, *args).graph, "cpu", "cpp")) & REWRITES
