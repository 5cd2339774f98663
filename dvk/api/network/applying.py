"""What a patch does with a model. The text of this module is copied into patches: it may use only torch and the standard library."""

import importlib
import sys
from typing import Any

READS: dict[str, Any] = {}
"""Name of a class of configurations → its attributes that the model reads; all of other objects counts."""
BLOCKS: dict[str, Any] = {}
"""Name of a module in this package → class, name of the drop-in's copy of it, and the configurations that its kernels are proved for."""


def apply(model: Any, quiet: bool = False, only: Any = None) -> Any:
    """Have every block of `model` that this package has kernels for compute with them; returns `model`, which keeps its weights.

    Kernels run under torch.no_grad(), those that were made for training also with gradients, and for inputs of the sizes that they were
    made for; otherwise the original runs. Unless `quiet`, stderr says what was patched, and what was left and why.

    Args:
        only: names of blocks to patch; None: all.
    """
    done: list[str] = []
    left: dict[str, str] = {}
    inside: tuple[str, ...] = ()
    for path, part in list(model.named_modules()):
        # The kernels of a module compute what it holds, and run only while that is as it was.
        if path.startswith(inside):
            continue
        why = "" if getattr(type(part), "_dvk_was", None) else dvk_patched(part, only)
        if why:
            left[path] = why
        elif getattr(type(part), "_dvk_was", None):
            done.append(path)
            inside += (f"{path}." if path else "",)
    if not quiet:
        print(f"apply: {len(done)} modules patched, {len(left)} left as before", file=sys.stderr)
        for path, why in list(left.items())[:8]:
            print(f"apply: left {path} as before: {why}", file=sys.stderr)
    return model


def dvk_patched(part: Any, only: Any) -> str:
    """Patch a module if there are kernels for it; returns why one of a known class is left, else an empty text."""
    why = ""
    kind = f"{type(part).__module__}.{type(part).__qualname__}"
    for name, block in BLOCKS.items():
        if block["class"] != kind or only is not None and name not in only:
            continue
        if "forward" in vars(part):
            return "its forward() was set on the instance"
        drop_in = importlib.import_module(f"{__name__}.{name}")
        if dvk_key(drop_in, part, READS) not in block["configs"]:
            why = "its attributes or sizes of weights differ from those of the modules that were proved"
            continue
        # The guard of the drop-in compares configurations as a whole; what differs here is not read.
        new = drop_in.ModelNew
        whole = drop_in.dvk_facts_key(part, new._dvk_read)
        if whole not in new._dvk_known.split():
            new._dvk_known += f" {whole}"
        bind_base(drop_in, block["entry"], type(part))
        dvk_dress(part, new)
        return ""
    return why


def remove(model: Any) -> Any:
    """Undo `apply`; returns `model`."""
    for part in model.modules():
        if was := getattr(type(part), "_dvk_was", None):
            for key in [key for key in vars(part) if key.startswith("_dvk_")]:
                del vars(part)[key]
            part.__class__ = was
    return model


def dvk_key(drop_in: Any, part: Any, reads: dict[str, Any]) -> str:
    """Hash of what kernels depend on in a module: its parts, their attributes, and what is read of configurations."""
    kind = drop_in.ModelNew
    held = [
        (vars(one), key, value)
        for one in part.modules()
        for key, value in vars(one).items()
        if type(value).__name__ in reads
    ]
    try:
        for owner, key, value in held:
            names = reads[type(value).__name__]
            owner[key] = {name: getattr(value, name, None) for name in names}
        return str(drop_in.dvk_facts_key(part, kind._dvk_read))
    finally:
        for owner, key, value in held:
            owner[key] = value


def bind_base(drop_in: Any, entry: str, kind: type) -> None:
    """Have a drop-in's copy of a class inherit from the class itself, so that calls without kernels run what the user has."""
    live = getattr(drop_in, entry, None)
    if isinstance(live, type) and live.__bases__ != (kind,):
        live.__bases__ = (kind,)
    drop_in.ModelNew._dvk_was = kind


def dvk_dress(part: Any, kind: Any) -> None:
    """Turn a module into an instance of a drop-in's class."""
    if vars(part).get("_dvk_of") is not kind:
        for key in [key for key in vars(part) if key.startswith("_dvk_")]:
            del vars(part)[key]
        vars(part)["_dvk_of"] = kind
    part.__class__ = kind
