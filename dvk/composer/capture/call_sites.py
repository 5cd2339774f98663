"""Where an exception went through a model: the submodules, methods and functions that could be left to PyTorch."""

from __future__ import annotations

import types
from collections.abc import Iterator

import torch

import dvk
from dvk.composer.capture.calling import ModuleCall
from dvk.composer.capture.eager_calls import CallSite


def children(model: torch.nn.Module) -> list[str]:
    """The outermost submodules other than containers."""
    result: list[str] = []
    for path, module in model.named_modules():
        if (
            path
            and not isinstance(module, (*CONTAINERS, torch.nn.Sequential))
            and not any(path.startswith(f"{one}.") for one in result)
        ):
            result.append(path)
    return result


def outward(place: CallSite, call: ModuleCall) -> list[CallSite]:
    """The modules around a place, innermost first."""
    parts = place.path.split(".") if place.path else []
    if place.name and place.module is None and place.path:
        parts.append("")
    around = [CallSite(".".join(parts[:n])) for n in range(len(parts) - 1, 0, -1)]
    return [one for one in around if not isinstance(call.model.get_submodule(one.path), CONTAINERS)]


CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict)


def same_class_places(place: CallSite, model: torch.nn.Module) -> Iterator[CallSite]:
    """The place, and that of every other module of its class: if one layer fails, all do."""
    yield place
    if place.module is None and place.path:
        kind = type(model.get_submodule(place.path))
        if not kind.__module__.startswith("torch.nn.modules.container"):
            for path, module in model.named_modules():
                if type(module) is kind and path:
                    yield CallSite(path, place.name)


def candidates(error: BaseException, call: ModuleCall) -> Iterator[CallSite]:
    """Places on the way to an exception, innermost first; the model's own forward is excluded."""
    path = getattr(error, "path", None)
    if path:
        yield CallSite(path)
        yield from outward(CallSite(path), call)
        return
    cause = error.__cause__ or error.__context__ or error
    paths = {id(module): path for path, module in call.model.named_modules()}
    frames = []
    step = cause.__traceback__
    while step is not None:
        frames.append(step.tb_frame)
        step = step.tb_next
    for frame in reversed(frames):
        if not _is_theirs(frame):
            continue
        code = frame.f_code
        owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if isinstance(owner, torch.nn.Module):
            path = paths.get(id(owner))
            if path is None:
                continue
            if (
                code.co_name in ("forward", "__call__")
                or getattr(getattr(type(owner), code.co_name, None), "__code__", None) is not code
            ):
                if path:
                    yield CallSite(path)
            else:
                yield CallSite(path, code.co_name)
                if path:
                    yield CallSite(path)
            continue
        function = frame.f_globals.get(code.co_name)
        if (
            isinstance(function, types.FunctionType)
            and function.__code__ is code
            and not _is_entry(function, call)
        ):
            name = "" if frame.f_globals is call.home else str(frame.f_globals.get("__name__"))
            yield CallSite(name=code.co_name, module=name)


def _is_theirs(frame: types.FrameType) -> bool:
    name = str(frame.f_globals.get("__name__"))
    if name.partition(".")[0] == dvk.__name__ and not name.startswith("dvk.tasks.entry"):
        return False
    return name.partition(".")[0] != "torch" or (
        name.startswith("torch.nn") and name != "torch.nn.modules.module"
    )


def _is_entry(function: types.FunctionType, call: ModuleCall) -> bool:
    inner = getattr(type(call.model).forward, "__closure__", None) or ()
    held = [getattr(call.model, "function", None), *(cell.cell_contents for cell in inner)]
    return any(one is function for one in held)


def scripted_submodules(model: torch.nn.Module) -> list[CallSite]:
    """Submodules that TorchScript runs."""
    return [
        CallSite(path)
        for path, module in model.named_modules()
        if path and isinstance(module, torch.jit.ScriptModule)
    ]


def hooked_submodules(model: torch.nn.Module) -> list[CallSite]:
    """Submodules with hooks around their forward."""
    return [
        CallSite(path)
        for path, module in model.named_modules()
        if path and (module._forward_hooks or module._forward_pre_hooks)
    ]
