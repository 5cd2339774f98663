"""Other benchmarks' task files as files in KernelBench's format: dvk knows the layouts, the user brings the problems.

    robust-kbench                 a folder a task: func_forward.py (Model, get_inputs with settings) and config_forward.json
    TritonBench, KernelBench-X    a function named like its file, a line of `#`, then tests that call it

None of their code is executed here: text goes in and text comes out, with missing parts added at its end.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

ROOTS = ("KernelBench", "data/kernelbenchx", "data/TritonBench_T_v1", "tasks")
"""Folders of tasks in a checkout of KernelBench, KernelBench-X, TritonBench or robust-kbench."""
ROBUST, SETTINGS = "func_forward.py", "config_forward.json"
SEPARATOR = re.compile(r"^#{100,}[ \t]*$", re.MULTILINE)
"""146 of them in the published set."""
MODULE = re.compile(r"^class Model\b", re.MULTILINE)


def root(folder: Path) -> Path:
    """The task folder of a checkout; `folder` itself if it is no known checkout."""
    for name in ROOTS:
        inner = folder / name
        if name == "tasks" and not any(inner.glob(f"*/{ROBUST}")):
            continue
        if inner.is_dir() and (name != "KernelBench" or any(inner.glob("level*"))):
            return inner
    return folder


def has_tests(source: str) -> bool:
    """Whether it is a function with tests below a line of `#`, and not a module with a decorative line."""
    return SEPARATOR.search(source) is not None and MODULE.search(source) is None


def from_settings(source: str, settings: dict[str, Any]) -> str:
    """A robust-kbench task under the first of its settings.

    Args:
        source: of func_forward.py.
        settings: config_forward.json.
    """
    shared = _first(settings, "shared")
    given, made = {**shared, **_first(settings, "input")}, {**shared, **_first(settings, "init")}
    return f"""{source.rstrip()}


# The first of the task's settings, as KernelBench's format has them.
import inspect as _inspect


def _accepted(function, settings):
    names = _inspect.signature(function).parameters
    return {{name: value for name, value in settings.items() if name in names}}


_inputs_for = get_inputs


def get_inputs():
    return list(_inputs_for(**_accepted(_inputs_for, {given!r})))


_init_inputs = globals().get("get_init_inputs")


def get_init_inputs():
    settings = _accepted(Model.__init__, {made!r})
    return [[], settings] if settings or _init_inputs is None else _init_inputs()
"""


def from_tests(name: str, source: str) -> str:
    """A function with tests as a module whose inputs are those of the tests' largest call.

    Args:
        name: of the file, which the function usually shares.
        source: the whole file.

    Raises:
        ValueError: no function found, or one that takes any number of arguments.
    """
    cut = SEPARATOR.search(source)
    assert cut is not None, "ask has_tests first"
    above, tests = source[: cut.start()], source[cut.end() :]
    function = _function_of(name, above)
    asked = function.args
    if asked.vararg or asked.kwarg:
        raise ValueError(f"`{function.name}` takes any number of arguments")
    names = [a.arg for a in [*asked.posonlyargs, *asked.args]] + [a.arg for a in asked.kwonlyargs]
    passed = ", ".join(
        [a.arg for a in [*asked.posonlyargs, *asked.args]]
        + [f"{a.arg}={a.arg}" for a in asked.kwonlyargs]
    )
    return f"""{above.rstrip()}


# The function as a module, with the inputs of the largest call that the task's tests make.
import copy as _copy
import inspect as _inspect

import torch as _torch

_TESTS = {tests!r}


class Model(_torch.nn.Module):
    def forward(self, {", ".join(names)}):
        return {function.name}({passed})


def get_inputs():
    calls, called = [], {function.name}

    def recorded(*args, **kwargs):
        bound = _inspect.signature(called).bind(*args, **kwargs)
        bound.apply_defaults()
        calls.append(_copy.deepcopy([bound.arguments[name] for name in {names!r}]))
        return called(*args, **kwargs)

    scope = {{**globals(), "{function.name}": recorded}}
    exec(_TESTS, scope)
    if not calls:
        for name, test in list(scope.items()):
            if name.startswith("test") and callable(test):
                test()
    return max(calls, key=lambda call: sum(x.numel() for x in call if isinstance(x, _torch.Tensor)))


def get_init_inputs():
    return []
"""


def _function_of(name: str, above: str) -> ast.FunctionDef:
    """The tested function: of the file's name, else `kernel_function`, else the last public one.

    Raises:
        ValueError: no function found.
    """
    try:
        functions = {
            node.name: node for node in ast.parse(above).body if isinstance(node, ast.FunctionDef)
        }
    except SyntaxError as error:
        raise ValueError(f"not Python: {error.msg}, line {error.lineno}") from None
    public = [one for one in functions if not one.startswith("_")]
    function = (
        functions.get(name)
        or functions.get("kernel_function")
        or (functions[public[-1]] if public else None)
    )
    if function is None:
        raise ValueError(f"no function `{name}` above the line of #")
    return function


def settings(folder: Path) -> dict[str, Any]:
    """config_forward.json of a task folder; empty if there is none.

    Raises:
        ValueError: it is not a JSON object.
    """
    file = folder / SETTINGS
    result = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if not isinstance(result, dict):
        raise ValueError(f"{SETTINGS} is not an object")
    return result


def _first(found: dict[str, Any], what: str) -> dict[str, Any]:
    """The first of the single settings of a kind, else of the several."""
    for key in (f"single_{what}_configs", f"multi_{what}_configs"):
        value = found.get(key)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, dict) and value:
            return dict(value)
    return {}
