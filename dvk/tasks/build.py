"""Live objects from a `Task`: the reference, its inputs, and candidates with the reference's weights.

Child side only: executes the user's file, or a model's. Raises for errors of the code; the sandbox reports what kills the process. Nothing
here compares or measures.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn

from dvk.errors import TaskError
from dvk.records import ShapeVariant, Task
from dvk.tasks import entry, input_sampler, searched
from dvk.tasks.ambient import under_autocast
from dvk.tasks.sourcefile import blame, execute, fault
from dvk.tasks.specs import parse_init
from dvk.tasks.state import seeded
from dvk.tasks.trees import map_tensors

CANDIDATE = "ModelNew"


class CandidateError(Exception):
    """A candidate that did not run; material for a verdict, not for the user.

    `stage` and `status` are those of a `Verdict`.
    """

    def __init__(
        self,
        stage: Literal["static", "compile"],
        message: str,
        status: Literal["rejected", "compile_error", "launch_error"],
    ):
        super().__init__(message)
        self.stage = stage
        self.message = message
        self.status = status


class BuiltTask:
    """A task's reference, ready to run.

    Attributes:
        task: what it was built from.
        module: the executed file.
        model: the reference as an nn.Module; a plain function is wrapped, its state_dict is empty.
        namespace: the file's globals.
        variants: names of the shapes that the reference accepts, `native` first.
    """

    def __init__(self, task: Task, module: ModuleType, model: nn.Module, on_device: bool):
        self.task = task
        self.module = module
        self.model = model
        self.namespace: dict[str, Any] = vars(module)
        self.constructed_on_device = on_device
        self._drawer = input_sampler.Drawer(task, module, model.forward)
        self._call: tuple[list[Any], dict[str, Any]] | None = None
        self._variants = {variant.name: variant for variant in task.shape_variants}
        self.variants: tuple[str, ...] = ("native", *self._variants)

    def inputs(
        self, seed: int, variant: str | ShapeVariant = "native"
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return fresh args and kwargs of one call, on the task's device and dtype; equal seeds, equal values.

        `variant` is one of `variants`, or the caller's size, which the reference need not accept.

        Raises:
            TaskError: get_inputs() failed.
            KeyError: no such variant.
        """
        args, kwargs = input_sampler.guarded(self._drawer, seed, self._shape(variant))
        self._call = [None] * len(args), dict.fromkeys(kwargs)
        return args, kwargs

    @property
    def shared_inputs(self) -> tuple[tuple[str, str], ...]:
        """Names of inputs that shared memory in the draw made last, before each became a tensor apart."""
        return self._drawer.shared

    def _shape(self, variant: str | ShapeVariant) -> ShapeVariant | None:
        if isinstance(variant, ShapeVariant):
            return variant
        return None if variant == "native" else self._variants[variant]

    def check_call(self, call: Callable[..., Any], what: str) -> None:
        """Refuse a `call` whose signature cannot take this task's inputs.

        Raises:
            TypeError: with the difference.
        """
        if self._call is None:
            self.inputs(0)
        assert self._call is not None
        entry.check_call(call, *self._call, what)

    def input_names(self, args: list[Any]) -> list[str]:
        """Return the forward parameters that positional arguments go to."""
        return self._drawer.names(args)

    def init(self) -> tuple[list[Any], dict[str, Any]]:
        """Return fresh constructor arguments, with tensors on the task's device."""
        return _init_arguments(self.task, self.module)


def build(task: Task, seed: int = 0) -> BuiltTask:
    """Execute the task's file and construct its reference under `seed`, on its device, dtype and mode.

    Raises:
        TaskError: the file, its constructor or its get_init_inputs() fails.
    """
    module = run_file(task)
    if task.kind == "function":
        model = under_autocast(entry.as_module(getattr(module, task.entry)), task)
        return BuiltTask(task, module, model, False)
    constructor = getattr(module, task.entry)
    on_device = task.device != "cpu"
    hint = "pass the constructor's arguments with get_init_inputs() or --init" + _signature(
        constructor
    )
    for place in [True, False] if on_device else [False]:
        try:
            model = _construct(constructor, task, module, seed, place)
        except (TaskError, torch.OutOfMemoryError):
            raise
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            if place:
                continue  # some constructors work on a CPU only, and their results can be moved
            raise fault(f"{task.entry}() could not be constructed", error, hint) from error
        if getattr(model.forward, "__func__", None) is nn.Module.forward:
            raise TaskError(
                f"`{task.entry}` has no forward",
                "define forward(self, …) in the class, with its inputs",
            )
        built = BuiltTask(task, module, model, place)
        _initialise_lazy(model, partial(built.inputs, 0))
        return built
    raise AssertionError("unreachable")


def build_candidate(source: str, task: Task, built: BuiltTask, seed: int = 0) -> nn.Module:
    """Construct `ModelNew` of `source` as the reference was, with the reference's weights if they fit.

    Weights are copied if names and shapes of the two state_dicts agree (`same_weights`); otherwise they are equal only as far as equal
    seeds and an equal order of drawing make them.

    Raises:
        CandidateError: not Python, raises on import, no ModelNew, its constructor raises, or its forward
            does not take the inputs.
    """
    model = construct_candidate(
        source,
        task,
        built.module,
        built.inputs(seed),
        on_device=built.constructed_on_device,
        training=built.model.training,
        seed=seed,
    )
    if same_weights(model, built.model):
        model.load_state_dict(built.model.state_dict())
    return model


def construct_candidate(
    source: str,
    task: Task,
    module: ModuleType,
    call: input_sampler.Call,
    *,
    on_device: bool,
    training: bool,
    seed: int = 0,
) -> nn.Module:
    """Construct `ModelNew` of `source` with the weights of its constructor.

    Args:
        source: the candidate's text.
        task: the task that it competes for.
        module: the executed file of the task; its get_init_inputs() gives the constructor's arguments.
        call: example args and kwargs that forward must accept.
        on_device: the reference was constructed under `torch.device(task.device)`.
        training: the reference's mode.
        seed: seed of all generators during construction.

    Raises:
        CandidateError: see `build_candidate`.
    """
    defined = _run_candidate(source)
    constructor = getattr(defined, CANDIDATE, None)
    if not (
        inspect.isclass(constructor) and issubclass(constructor, nn.Module)
    ) and not inspect.isfunction(constructor):
        what = (
            "defines no"
            if constructor is None
            else "has something that is neither an nn.Module class nor a function as"
        )
        raise CandidateError("static", f"the candidate {what} `{CANDIDATE}`", "rejected")
    try:
        if task.kind == "function":
            with seeded(seed):
                model = _placed(constructor(), task)
        else:
            model = _construct(constructor, task, module, seed, on_device)
        _initialise_lazy(model, lambda: call)
        if not training:
            model.eval()
    except (Exception, SystemExit) as error:  # a candidate may raise anything
        message = f"{CANDIDATE}() could not be constructed: {blame(error)}"
        raise CandidateError("compile", message, "launch_error") from error
    try:
        entry.check_call(model.forward, *call, f"{CANDIDATE}.forward")
    except TypeError as error:
        raise CandidateError("static", str(error), "rejected") from None
    return model


def same_weights(model: nn.Module, reference: nn.Module) -> bool:
    """Whether the two state_dicts have the same names and shapes."""
    mine, theirs = model.state_dict(), reference.state_dict()
    return mine.keys() == theirs.keys() and all(
        getattr(mine[key], "shape", None) == getattr(theirs[key], "shape", None) for key in mine
    )


def run_file(task: Task) -> ModuleType:
    """Execute the task's text.

    Raises:
        TaskError: it is not Python, or raises.
    """
    name = f"`{_file(task)}`"
    try:
        compile(task.source, task.path or task.name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = (
            f", line {error.lineno}: {(error.text or '').strip()}"
            if isinstance(error, SyntaxError) and error.lineno is not None
            else ""
        )
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise TaskError(
            f"{name} is not Python: {said}{where}",
            "give a Python file that defines an nn.Module class or a function",
        ) from None
    searched.have(task.folders)
    try:
        return execute(task.source, path=task.path, texts=task.beside, package=task.package)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise fault(
            f"{name} could not be imported", error, _import_hint(error, task.package)
        ) from error


def _run_candidate(source: str) -> ModuleType:
    try:
        compile(source, "candidate.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = f"{error.msg}, line {error.lineno}" if isinstance(error, SyntaxError) else str(error)
        raise CandidateError("static", f"the candidate is not Python: {said}", "rejected") from None
    try:
        return execute(source, role="candidate")
    except (Exception, SystemExit) as error:  # a candidate may raise anything
        raise CandidateError(
            "compile", f"importing the candidate failed: {blame(error)}", "compile_error"
        ) from error


def _construct(
    constructor: Callable[..., nn.Module],
    task: Task,
    module: ModuleType,
    seed: int,
    on_device: bool,
) -> nn.Module:
    with seeded(seed):
        args, kwargs = _init_arguments(task, module)
        torch.manual_seed(seed)  # constructors start from the seed, whatever get_init_inputs() drew
        if not on_device:
            return _placed(constructor(*args, **kwargs), task)
        with torch.device(
            task.device
        ):  # drawing a large weight on a GPU takes milliseconds, on a CPU seconds
            model = constructor(*args, **kwargs)
        return _placed(model, task)


def _placed(model: nn.Module, task: Task) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TypeError(f"it returned {type(model).__name__}, not an nn.Module")
    dtype = getattr(torch, task.dtype) if task.dtype else None
    model = under_autocast(model.to(device=torch.device(task.device), dtype=dtype), task)
    return model.eval() if task.eval_mode else model


def _init_arguments(task: Task, module: ModuleType) -> tuple[list[Any], dict[str, Any]]:
    if task.init_args:
        return parse_init(task.init_args)
    function = getattr(module, entry.GET_INIT_INPUTS, None)
    if not callable(function):
        return [], {}
    try:
        value = function()
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise fault(
            "get_init_inputs() failed", error, "run it in Python by itself and fix it"
        ) from error
    if isinstance(value, dict):
        args, kwargs = [], dict(value)
    elif (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and isinstance(value[0], (list, tuple))
        and isinstance(value[1], dict)
    ):
        args, kwargs = list(value[0]), dict(value[1])
    elif isinstance(value, (list, tuple)):
        args, kwargs = list(value), {}
    else:
        raise TaskError(
            f"get_init_inputs() returned {type(value).__name__}",
            "return a list of constructor arguments, or [args, kwargs]",
        )
    # A tensor that the constructor keeps as a plain attribute would not move with the module.
    return map_tensors(lambda tensor: tensor.to(torch.device(task.device)), (args, kwargs))


def _initialise_lazy(model: nn.Module, call: Callable[[], input_sampler.Call]) -> None:
    """Give nn.Lazy* modules their shapes: they take them from the first call."""
    if not any(nn.parameter.is_lazy(tensor) for tensor in [*model.parameters(), *model.buffers()]):
        return
    args, kwargs = call()
    try:
        with torch.no_grad(), seeded(0):
            model(*args, **kwargs)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise fault(
            "forward failed on the example inputs", error, "make get_inputs() fit forward"
        ) from error


def _file(task: Task) -> str:
    return os.path.basename(task.path) if task.path else task.name


def _signature(constructor: Callable[..., Any]) -> str:
    try:
        return f": {constructor.__name__}{inspect.signature(constructor)}"
    except (TypeError, ValueError):
        return ""


def _import_hint(error: BaseException, own: str) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        if own and error.name.split(".")[0] == own.split(".")[0]:
            return f"check the import: `{own}` is taken to be the package that the file is in, and has no `{error.name}`"
        package = error.name.partition(".")[0]
        return f"install `{package}` into this environment, put it next to the file, or drop the import"
    return "run the file with Python by itself and fix what it says"
