"""dvk — make PyTorch code faster with kernels it writes, proves and remembers.

The commands are functions here, in the same words: `dvk.optimize`, `dvk.verify`, `dvk.evaluate`, `dvk.score`, and `dvk.Library`. They raise
`dvk.DvkError`s. Nothing heavy is imported before one of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dvk.api import Result, evaluate, optimize, verify
    from dvk.api.calls import Calls, capture
    from dvk.api.network import ModelResult, optimize_model
    from dvk.api.scoring import Scored, Scorer, score
    from dvk.errors import (
        DvkError,
        LibraryError,
        MachineError,
        ModelError,
        RunFolderError,
        TaskError,
        UsageError,
    )
    from dvk.records import Verdict
    from dvk.skills import Library

__version__ = "0.1.0"

__all__ = [
    "Calls",
    "DvkError",
    "Library",
    "LibraryError",
    "MachineError",
    "ModelError",
    "ModelResult",
    "Result",
    "RunFolderError",
    "Scored",
    "Scorer",
    "TaskError",
    "UsageError",
    "Verdict",
    "capture",
    "evaluate",
    "optimize",
    "optimize_model",
    "score",
    "verify",
]

_HOMES = {
    "Calls": "dvk.api.calls",
    "capture": "dvk.api.calls",
    "Result": "dvk.api",
    "evaluate": "dvk.api",
    "optimize": "dvk.api",
    "verify": "dvk.api",
    "ModelResult": "dvk.api.network",
    "optimize_model": "dvk.api.network",
    "Scored": "dvk.api.scoring",
    "Scorer": "dvk.api.scoring",
    "score": "dvk.api.scoring",
    "Library": "dvk.skills",
    "Verdict": "dvk.records",
    **dict.fromkeys(
        (
            "DvkError",
            "LibraryError",
            "MachineError",
            "ModelError",
            "RunFolderError",
            "TaskError",
            "UsageError",
        ),
        "dvk.errors",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `dvk` has no attribute `{name}`")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
