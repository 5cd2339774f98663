"""Compare classes for a drop-in's `replace()`: a class is the original if everything it computes with equals the file's own, item by item.

The items are those of the loaded class, not of a file: a class may come from a notebook, from `__main__`, from a module under another name
or one that was edited or reloaded since, and functions and globals may have been patched. The source text of these functions is copied into
drop-ins, as that of `guards` is.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import inspect
import io
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import torch


def dvk_tensor_facts(value: Any) -> tuple:
    """Type, dtype, shape and a hash of the values."""
    kind = type(value)
    whole = kind in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    whole = whole and not (value.is_nested or value.is_quantized or value.is_meta)
    flat = (
        value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        if whole
        else None
    )
    return (
        kind,
        str(value.dtype),
        None if value.is_nested else tuple(value.shape),
        hashlib.sha256(memoryview(flat.numpy())).digest() if flat is not None else None,
    )


def dvk_pieces(root: Any) -> dict[str, object]:
    """Everything that a class or function computes with, by name: code, defaults, and their references within the same file.

    Lines and paths are omitted. Objects of another file are represented by name. Globals that the functions write are excluded.
    """
    home = (
        root.__globals__.get("__name__")
        if isinstance(root, types.FunctionType)
        else root.__module__
    )
    labels: dict[int, tuple[str, Any]] = {}
    pieces: dict[str, object] = {}
    reached: dict[str, Any] = {}
    pending: list[Any] = []
    written: set[str] = set()

    def short(name: str) -> str:
        # A drop-in calls the user's ModelNew dvk_ModelNew; and until Python 3.11 constants say where a lambda was made.
        return name.removeprefix("dvk_").rpartition("<locals>.")[2]

    def label(value: Any) -> str:
        if id(value) not in labels:
            where = (
                value.__globals__.get("__name__")
                if isinstance(value, types.FunctionType)
                else getattr(value, "__module__", None)
            )
            name = short(str(getattr(value, "__qualname__", value.__name__)))
            name = name if where == home else f"{where}.{name}"
            again = sum(known.partition(" ")[0] == name for known, _ in labels.values())
            labels[id(value)] = f"{name} {again + 1}" if again else name, value
            if isinstance(value, types.FunctionType) or where == home and isinstance(value, type):
                pending.append(value)
            elif hasattr(value, "__wrapped__"):
                reached[f"{name}()"] = value.__wrapped__
        return labels[id(value)][0]

    class Values(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            kind = type(value)
            if kind is str:
                return "'" + short(value)
            if kind.__module__ == "logging":  # loggers are named after their file
                return kind
            if issubclass(
                kind,
                (
                    type,
                    types.FunctionType,
                    types.BuiltinFunctionType,
                    types.ModuleType,
                    functools._lru_cache_wrapper,
                ),
            ):
                return label(value)
            if kind is types.CodeType:
                names = (
                    value.co_names,
                    value.co_varnames,
                    value.co_freevars,
                    getattr(value, "co_exceptiontable", b""),
                )
                return (
                    "code",
                    value.co_code,
                    names,
                    value.co_argcount,
                    value.co_kwonlyargcount,
                    value.co_consts,
                )
            if kind in (set, frozenset):
                return kind, sorted(map(written_out, value))
            if kind in (
                torch.dtype,
                torch.device,
                torch.Size,
                torch.finfo,
                torch.iinfo,
                torch.layout,
                torch.memory_format,
            ):
                return kind, repr(value)
            if issubclass(kind, torch.Tensor):
                return dvk_tensor_facts(value)
            if kind.__module__.partition(".")[0] in ("torch", "triton") and not issubclass(
                kind, torch.nn.Module
            ):
                return (
                    kind,
                    str(inspect.getattr_static(value, "__name__", "")),
                    inspect.getattr_static(value, "fn", None),
                )
            return None

        def reducer_override(self, value: Any) -> Any:
            kind = type(value)
            if kind in copyreg.dispatch_table:
                return NotImplemented
            if kind in (staticmethod, classmethod, property):
                return kind, tuple(
                    getattr(value, name, None) for name in ("__func__", "fget", "fset")
                )
            try:
                made = value.__reduce_ex__(2)
            except Exception:  # noqa: BLE001 - of what cannot be written out, its kind and its attributes
                made = (
                    kind,
                    (object.__getattribute__(value, "__dict__") if kind.__dictoffset__ else None,),
                )
            return (kind, (made,)) if isinstance(made, str) else made

    def written_out(value: Any) -> bytes:
        text = io.BytesIO()
        Values(text, 4).dump(value)
        return text.getvalue()

    def cell(held: Any) -> tuple:
        try:
            return (held.cell_contents,)
        except ValueError:  # it is empty
            return ()

    def look_into(value: Any) -> None:
        name = label(value)
        if isinstance(value, type):
            own = {
                n: v
                for n, v in vars(value).items()
                if not n.startswith("__") or isinstance(v, types.FunctionType)
            }
            pieces[name] = written_out([*value.__bases__, *map(short, sorted(own, key=short))])
            reached.update({f"{name}.{short(n)}": v for n, v in own.items()})
            return
        of_home = value.__globals__.get("__name__") == home
        given = (
            value.__defaults__,
            value.__kwdefaults__,
            [cell(held) for held in value.__closure__ or ()],
        )
        pieces[f"{name}()"] = written_out([given, value.__code__ if of_home else None])
        codes = [value.__code__] if of_home else []
        while codes:
            code = codes.pop()
            codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
            for step in dis.get_instructions(code):
                if step.opname == "STORE_GLOBAL":
                    written.add(short(step.argval))
                elif (
                    step.opname == "LOAD_GLOBAL"
                    and step.argval in value.__globals__
                    and not step.argval.startswith("__")
                ):
                    reached[short(step.argval)] = value.__globals__[step.argval]

    label(root)
    while pending or reached:
        if pending:
            look_into(pending.pop())
            continue
        # Code first: the names that functions write are known once all of them have been visited.
        code = (
            n
            for n, v in reached.items()
            if isinstance(v, (types.FunctionType, type, staticmethod, classmethod))
        )
        name = next(code, next(iter(reached)))
        value = reached.pop(name)
        if name not in written and name not in pieces:
            pieces[name] = written_out(value)
    return pieces


def dvk_differs(theirs: Any, mine: Any, caches: set[str]) -> str:
    """The difference of a class or function from this file's own, for people; empty if there is none. `caches` may hold anything."""
    if theirs is mine:
        return ""
    try:
        there, here = dvk_pieces(theirs), dvk_pieces(mine)
    except Exception as error:  # noqa: BLE001 - what was looked into is the user's, and may raise anything
        return f"comparing it with the one in this file raised {type(error).__name__}"
    names = [
        name
        for name in {**here, **there}
        if here.get(name) != there.get(name) and name not in caches
    ]
    return f"it is not the one in this file: `{names[0]}` differs" if names else ""


def dvk_empty(held: dict[str, Any]) -> set[str]:
    """Names of empty containers in a file and its classes: items that functions store there later are no difference."""
    owners = {
        "": held,
        **{f"{name}.": vars(kind) for name, kind in held.items() if issubclass(type(kind), type)},
    }
    return {
        f"{owner}{name}".removeprefix("dvk_")
        for owner, values in owners.items()
        for name, value in values.items()
        if type(value) in (dict, list, set) and not value
    }


def dvk_told(entry: str, done: list[str], left: dict[str, str]) -> None:
    """Report on stderr what was replaced, and what was left and why."""
    shown = (
        ", ".join(done[:8]) + (f" and {len(done) - 8} more" if len(done) > 8 else "")
        or f"no `{entry}`"
    )
    print(f"replace: {len(done)} replaced ({shown}), {len(left)} left as before", file=sys.stderr)
    for place, why in list(left.items())[:8]:
        print(f"replace: left {place} as before: {why}", file=sys.stderr)


def dvk_replaced(
    model: Any, new: type, original: type, here: dict[str, Any], caches: set[str], quiet: bool
) -> Any:
    """Turn every instance of `original` in `model` into one of `new`; reports on stderr what it did, and what it left and why."""
    entry = original.__name__
    known: dict[type, str] = {}
    left: dict[str, str] = {}
    done: list[str] = []
    converted: dict[int, Any] = {}

    def differs(kind: type, mine: type) -> str:
        if kind not in known:
            known[kind] = dvk_differs(kind, mine, caches)
        return known[kind]

    def of_torch(kind: type) -> bool:
        return str(kind.__module__).partition(".")[0] == "torch"

    def reason(module: Any) -> str:
        kind = type(module)
        if kind.__name__ != entry:
            return f"its class `{kind.__name__}` is a subclass with additional code"
        if "forward" in vars(module):
            return "its forward() was set on the instance"
        if what := differs(kind, original):
            return what
        for part in {type(part) for part in list(module.modules())[1:]}:
            mine = here.get("dvk_ModelNew" if part.__name__ == "ModelNew" else part.__name__)
            if (
                isinstance(mine, type)
                and not of_torch(part)
                and not any(held is part for held in here.values())
            ):
                if what := differs(part, mine):
                    return f"its {part.__name__}: {what}"
        return ""

    def exchanged(module: Any, place: str) -> Any:
        if isinstance(module, new) or not any(
            kind.__name__ == entry and not of_torch(kind) for kind in type(module).__mro__
        ):
            return module
        if id(module) not in converted and (why := reason(module)):
            left[place] = why
            return module
        if id(module) not in converted:
            converted[id(module)] = object.__new__(new)
            converted[id(module)].__dict__ = module.__dict__
        done.append(place)
        return converted[id(module)]

    for path, parent in list(model.named_modules()):
        for name, child in list(parent._modules.items()):
            parent._modules[name] = exchanged(child, f"{path}.{name}" if path else name)
    model = exchanged(model, "the model itself")
    if not quiet:
        dvk_told(entry, done, left)
    return model


def dvk_instead(
    function: Any, new: Callable[..., Any], original: Any, caches: set[str], quiet: bool
) -> Any:
    """The function to call instead of `function`: `new` if it is `original`, else itself; reports on stderr which."""
    why = dvk_differs(function, original, caches) if function is not None else ""
    if not quiet:
        named = getattr(function, "__name__", repr(function))
        print(
            f"replace: left `{named}` as before: {why}"
            if why
            else f"replace: call what it returns instead of `{original.__name__}`, or import `{new.__name__}`",
            file=sys.stderr,
        )
    return function if why else new
