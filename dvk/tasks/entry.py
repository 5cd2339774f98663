"""The class or function of an executed file that is optimised, and its call.

Order without a name: `Model`, else the only nn.Module class that the file defines, else the only public function that it defines
besides get_inputs and get_init_inputs. Imported objects count only if they are named, or are called `Model` and the file defines no
class itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn

from dvk.errors import TaskError

GET_INPUTS = "get_inputs"
GET_INIT_INPUTS = "get_init_inputs"
GET_SHAPE_VARIANTS = "get_shape_variants"
"""Optional: a list of (name, [(input, dimension, size), …]), the other sizes to judge at; without it they are searched."""
OF_THE_FILE = (GET_INPUTS, GET_INIT_INPUTS, GET_SHAPE_VARIANTS)


def find(
    module: ModuleType, name: str | None, file: str
) -> tuple[str, Literal["module", "function"]]:
    """Return name and kind of the entry.

    Args:
        module: the executed file.
        name: the name that the user gave after the colon, or None.
        file: the file's name in messages.

    Raises:
        TaskError: nothing fits, several do, or the name is not an nn.Module class or a function.
    """
    classes = _own(module, _is_module_class)
    functions = [n for n in _own(module, inspect.isfunction) if n not in OF_THE_FILE]
    if name is not None:
        return name, _kind_of_named(module, name, file, [*classes, *functions])
    if "Model" in classes or (not classes and _is_module_class(getattr(module, "Model", None))):
        return "Model", "module"
    for found, kind, word in (
        (classes, "module", "nn.Module classes"),
        (functions, "function", "functions"),
    ):
        if len(found) == 1:
            return found[0], kind  # type: ignore[return-value]
        if found:
            raise TaskError(
                f"`{file}` has several {word}: {', '.join(found)}", f"name one: {file}:{found[-1]}"
            )
    raise TaskError(
        f"`{file}` defines no nn.Module class and no public function",
        "define `class Model(nn.Module)`, or name an imported one after a colon",
    )


def as_module(function: Callable[..., Any]) -> nn.Module:
    """Wrap `function` as a stateless nn.Module whose forward has the function's signature."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    forward.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[this, *signature.parameters.values()]
    )
    return type(
        "FunctionModule", (nn.Module,), {"forward": forward, "__module__": function.__module__}
    )()


def parameters(call: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a call; empty if Python cannot determine them."""
    try:
        return list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        return []


def positional_names(call: Callable[..., Any], count: int) -> list[str]:
    """Return names of the first `count` positional arguments; those taken by `*args` are `args.0`, …"""
    names: list[str] = []
    for parameter in parameters(call):
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}.{index}" for index in range(count - len(names))]
    return (names + [f"arg{index}" for index in range(len(names), count)])[:count]


def check_call(
    call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], what: str
) -> None:
    """Refuse arguments that the signature cannot take.

    Raises:
        TypeError: with Python's message, prefixed by `what`.
    """
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return
    given = list(signature.parameters.values())
    if (
        isinstance(call, torch._C.ScriptMethod) and given and given[0].name == "self"
    ):  # bound nevertheless
        signature = signature.replace(parameters=given[1:])
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{what}{signature} does not take these inputs: {error}") from None


def _kind_of_named(
    module: ModuleType, name: str, file: str, known: list[str]
) -> Literal["module", "function"]:
    if not hasattr(module, name):
        listed = (
            f"it has {', '.join(known)}"
            if known
            else "it defines no nn.Module class and no public function"
        )
        raise TaskError(f"`{file}` has no `{name}`", listed)
    value = getattr(module, name)
    if _is_module_class(value):
        return "module"
    if inspect.isfunction(value) or inspect.isbuiltin(value):
        return "function"
    if isinstance(value, nn.Module):
        raise TaskError(
            f"`{name}` in `{file}` is an object, not a class",
            f"name its class, {type(value).__name__}, or wrap it in a function",
        )
    raise TaskError(
        f"`{name}` in `{file}` is neither an nn.Module class nor a function",
        "name an nn.Module class or a plain function",
    )


def _is_module_class(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, nn.Module)


def _own(module: ModuleType, accepts: Callable[[Any], bool]) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and accepts(value)
        and getattr(value, "__module__", None) == module.__name__
    ]
