"""Which block of a network an operator belongs to, by the path of the module that runs it.

    blocks.0.norm → blocks.0        encoder.layers.3.attention → encoder.layers.3        head.2, a Linear → head

A block is the outermost numbered module that is more than one of torch's plain layers; where there is none, the child of the
model, where that holds others. An operator that belongs to none is the model's own.
"""

from __future__ import annotations

from typing import Any


def block_of(path: str, model: Any) -> str:
    """The block of the module at `path`, as a path; empty for the model's own.

    Args:
        path: dotted, as torch.export has it: a second call of the same module ends in `@1`.
        model: what the path begins at.
    """
    parts = path.partition("@")[0].split(".")
    module = model
    for position, part in enumerate(parts):
        module = getattr(module, part, None)
        if module is None:
            return ""
        if part.isdigit() and not _is_plain(module):
            return ".".join(parts[: position + 1])
    return parts[0] if any(True for _ in getattr(model, parts[0]).children()) else ""


def _is_plain(module: Any) -> bool:
    return type(module).__module__.startswith("torch.nn.") and not any(True for _ in module.children())
