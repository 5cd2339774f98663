"""Functions for work outside the graph: rebuilding results as pickle would, calling the module's own parts.

They travel inside drop-ins like those of `guards`.
"""

from __future__ import annotations

import sys
from typing import Any


def dvk_named(module: str, path: str) -> Any:
    """A class or function by its import path."""
    found = sys.modules.get(module) or __import__(module) and sys.modules[module]
    for part in path.split("."):
        found = getattr(found, part)
    return found


def dvk_made(made: Any, state: Any, items: list, pairs: list) -> Any:
    """An object rebuilt from the data that pickle would use."""
    if state is not None and hasattr(made, "__setstate__"):
        made.__setstate__(state)
    elif state is not None:
        state, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        made.__dict__.update(state or {})
        for name, value in (slots or {}).items():
            object.__setattr__(made, name, value)
    if items:
        made.extend(items)
    for key, value in pairs:
        made[key] = value
    return made
