"""Map an operator to its block of the network, by the path of the module that runs it.

    blocks.0.norm → blocks.0        encoder.layers.3.attention → encoder.layers.3        head.2, a Linear → head

A block is the outermost numbered module other than torch's plain layers; without one, it is the child of the model, if that child holds
other modules. An operator in no block belongs to the model itself.
"""

from __future__ import annotations

from typing import Any


def block_of(path: str, model: Any) -> str:
    """The block of the module at `path`, as a path; empty for the model itself.

    Args:
        path: dotted, as torch.export writes it: a second call of the same module ends in `@1`.
        model: the root of the path.
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
    return type(module).__module__.startswith("torch.nn.") and not any(
        True for _ in module.children()
    )
