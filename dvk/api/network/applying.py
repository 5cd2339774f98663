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
        new = drop_in.ModelNew
        if dvk_key(drop_in, part, READS) not in block["configs"]:
            why = dvk_unlike(drop_in, part, READS)
            continue
        dvk_known(drop_in, part, READS)
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
    dvk_narrow(drop_in, reads)
    return str(drop_in.dvk_facts_key(part, drop_in.ModelNew._dvk_read))


def dvk_narrow(drop_in: Any, reads: dict[str, Any]) -> None:
    """Have the guards of a drop-in see of a configuration only what is read of it: the rest may change at any time."""
    whole = drop_in.dvk_described
    if hasattr(whole, "dvk_reads"):
        return

    def described(value: Any, depth: int) -> str:
        kind = type(value).__name__
        if kind not in reads:
            return str(whole(value, depth))
        return f"{kind} with " + whole(
            {one: getattr(value, one, None) for one in reads[kind]}, depth
        )

    described.dvk_reads = reads  # type: ignore[attr-defined]
    drop_in.dvk_described = described


def dvk_texts(drop_in: Any, part: Any, reads: dict[str, Any]) -> tuple[Any, ...]:
    """The facts that a drop-in's programs were made for, with configurations as a module has them."""
    facts = []
    for paths, texts in drop_in.ModelNew._dvk_read:
        one = drop_in.dvk_part(part, paths[0])
        held = [name for name in texts if type(getattr(one, name, None)).__name__ in reads]
        facts.append((paths, {**texts, **{name: drop_in.dvk_fact(one, name) for name in held}}))
    return tuple(facts)


def dvk_unlike(drop_in: Any, part: Any, reads: dict[str, Any]) -> str:
    """What differs in a module from the one that kernels were made for."""
    changes = drop_in.dvk_changes(part, dvk_texts(drop_in, part, reads))
    names = ", ".join(name for one in reads.values() for name in one)
    return str(changes[0][1]) if changes else f"its configuration differs in one of {names}"


def dvk_known(drop_in: Any, part: Any, reads: dict[str, Any]) -> None:
    """Add a module to those that a drop-in's programs are proved for; its guards name what differs from it."""
    new = drop_in.ModelNew
    new._dvk_read = dvk_texts(drop_in, part, reads)
    key = drop_in.dvk_facts_key(part, new._dvk_read)
    if key not in new._dvk_known.split():
        new._dvk_known += f" {key}"


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
