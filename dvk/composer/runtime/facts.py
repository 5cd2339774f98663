"""Facts of a module that a graph depends on, as text: compared by a drop-in's guards, and shown by its `why()`.

They travel inside drop-ins like the functions of `guards`. `capture.reads` says which facts of a module count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

dvk_tensors = (torch.Tensor,)
"""Types of plain tensors; in a drop-in, those of a recorder's stand-ins too (see `source_file.write`)."""


def dvk_type_name(tensor: torch.Tensor) -> str:
    """The name of a tensor's type; stand-ins of a recorder count as plain."""
    plain = "Parameter" if isinstance(tensor, torch.nn.Parameter) else "Tensor"
    kind = type(tensor)  # an export substitutes tensors without values
    known = kind in dvk_tensors or kind.__module__.startswith("torch._subclasses.f")
    return plain if known else kind.__name__


def dvk_described(value: object, depth: int) -> str:
    """An attribute as text: plain values, small tensors, containers, and what functions hold."""
    if value is None or isinstance(
        value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
    ):
        return repr(value)
    if isinstance(value, torch.nn.Parameter) or depth > 8:
        return (
            dvk_type_name(value) if isinstance(value, torch.nn.Parameter) else type(value).__name__
        )
    if isinstance(value, torch.Tensor):
        # A tensor other than a buffer may have become part of the graph if it is small.
        few = (
            value.tolist()
            if value.numel() <= 256 and value.device.type != "meta" and not value.is_quantized
            else ""
        )
        return f"{tuple(value.shape)} {value.dtype} {few}"
    if isinstance(value, torch.nn.Module):
        return type(value).__qualname__
    if isinstance(value, type(torch)):  # a built-in function holds its Python module
        return value.__name__
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                f"{dvk_described(k, depth + 1)}: {dvk_described(v, depth + 1)}"
                for k, v in value.items()
            )
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return (
            type(value).__name__ + "(" + ", ".join(dvk_described(v, depth + 1) for v in value) + ")"
        )
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(dvk_described(v, depth + 1) for v in value)) + "}"
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    code = getattr(value, "__code__", None)
    held = [
        getattr(value, "__self__", None),
        {} if isinstance(value, type) else dict(getattr(value, "__dict__", {})),
    ]
    if code is not None:
        cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        consts = [c for c in code.co_consts if isinstance(c, (bool, int, float, str))]
        held += [
            code.co_names,
            consts,
            cells,
            getattr(value, "__defaults__", None),
            getattr(value, "__kwdefaults__", None),
        ]
    return name + dvk_described(held, depth + 1)


def dvk_part(module: torch.nn.Module, path: str) -> torch.nn.Module | None:
    """The submodule at a path; None if there is none."""
    try:
        return module.get_submodule(path)
    except AttributeError:
        return None


def dvk_holder(module: torch.nn.Module, name: str) -> dict | None:
    """The dictionary of a module that holds an attribute; None if it is its class's, or there is none."""
    own = module.__dict__
    for held in (own, own.get("_parameters"), own.get("_buffers")):
        if held is not None and name in held:
            return held
    return None


def dvk_place(tensor: torch.Tensor) -> str:
    """The kind of device that a tensor is on."""
    return tensor.device.type


def dvk_fact(module: torch.nn.Module, name: str) -> str:
    """An attribute of a module as text."""
    if name == "__class__":  # a drop-in calls the user's ModelNew dvk_ModelNew
        its = type(module)
        home = "torch." if its.__module__.startswith("torch.nn.") else ""  # PEFT has a Linear, too
        return home + its.__name__.removeprefix("dvk_")
    if name == "_modules":
        return "of " + ", ".join(module._modules)
    held = dvk_holder(module, name)
    if held is None:
        value = getattr(type(module), name, dvk_fact)
        if value is dvk_fact:
            return "absent"
        return "the class's" if hasattr(value, "__get__") else dvk_described(value, 0)
    value = held[name]
    if held is not module.__dict__ and value is not None:
        shape = ", ".join(map(str, value.shape))
        kind = dvk_type_name(value).removeprefix("Parameter").removeprefix("Tensor")
        return f"{kind} {str(value.dtype)[6:]}[{shape}] on {dvk_place(value)}".lstrip()
    text = dvk_described(value, 0)
    if len(text) > 100:
        text = f"{text[:60]}… #{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text


def dvk_facts(module: torch.nn.Module, wanted: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Path, name and text of the wanted attributes of a module; shared submodules and tied weights count as such."""
    seen: dict[int, str] = {}
    for path in sorted(wanted):
        part = dvk_part(module, path)
        for name in sorted(wanted[path]):
            text, held = "absent", None
            if part is not None:
                text, held = dvk_fact(part, name), dvk_holder(part, name)
                value: object = part if name == "__class__" else None
                if held is not None and held is not part.__dict__:
                    value = held[name]
                known = (
                    f"{path}.{name}"
                    if value is None
                    else seen.setdefault(id(value), f"{path}.{name}")
                )
                if known != f"{path}.{name}":
                    text += f", the same as {known.removesuffix('.__class__')}"
            yield path, name, text


def dvk_facts_key(module: torch.nn.Module, read: tuple) -> str:
    """Hash of what is read of a module: equal for modules that the same programs may run for."""
    wanted = {path: names for paths, names in read for path in paths}
    return hashlib.sha256(repr(list(dvk_facts(module, wanted))).encode()).hexdigest()[:16]


def dvk_changes(module: torch.nn.Module, read: tuple) -> list[tuple[str, str]]:
    """What differs from the facts that programs were made for: kind and text of each difference."""
    expected = {path: names for paths, names in read for path in paths}
    found = []
    for path, name, now in dvk_facts(module, expected):
        was = expected[path][name]
        what = path or "the module" if name == "__class__" else f"{path}.{name}".lstrip(".")
        if name == "training" and now != was:
            modes = {"True": "train", "False": "eval"}
            text = f"`{path or 'the module'}` is in {modes.get(now, now)} mode; the kernels were made for {modes[was]} mode"
            found.append((f"mode of {path or 'the module'}", text))
        elif now != was:
            found.append((what, f"`{what}` is {now}; the kernels were made for {was}"))
    return found
