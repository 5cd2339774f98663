"""Example inputs for a seed and a shape variant: from the file's get_inputs(), or from `--input` specs.

Equal seeds give equal values. The caller owns every tensor: if get_inputs() returns the same tensor twice, it is copied. A variant's values
come from further draws of the same generator, cut and joined, so they keep the native distribution and integers their domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from dvk.errors import TaskError
from dvk.records import ShapeVariant, Task
from dvk.tasks import entry
from dvk.tasks.shared_memory import sharing
from dvk.tasks.sourcefile import fault
from dvk.tasks.specs import FLOATS, INTEGERS, InputSpec, parse_inputs
from dvk.tasks.state import seeded
from dvk.tasks.trees import map_tensors, named_inputs, named_tensors

Call = tuple[list[Any], dict[str, Any]]

MAX_DRAWS = 64
"""Most draws of get_inputs() for one larger input; still larger ones repeat them."""


class Drawer:
    """Draws the inputs of one task's forward."""

    def __init__(self, task: Task, module: ModuleType, forward: Callable[..., Any]):
        """
        Raises:
            TaskError: no source of inputs, or `--input` names that forward does not have.
        """
        self._task = task
        self._module = module
        self._forward = forward
        self._on_device = task.device != "cpu"
        self._specs = parse_inputs(task.input_specs)
        self.shared: tuple[tuple[str, str], ...] = ()
        """Names of inputs that share memory in what was drawn last, before they were copied."""
        self._check_names()

    def draw(self, seed: int, variant: ShapeVariant | None = None) -> Call:
        """Draw fresh args and kwargs on the task's device and dtype.

        Raises:
            TaskError: get_inputs() raised or returned something that is not inputs.
        """
        if self._on_device:
            try:
                drawn = self._draw(seed, variant)
            except torch.OutOfMemoryError:
                pass  # outside of this block, where the error holds what was drawn
            except (RuntimeError, TypeError, NotImplementedError):
                # E.g. a CPU generator, or numpy: draw on the CPU and move, from now on.
                self._on_device = False
            else:
                return drawn
        if self._on_device:
            # Drawing on the CPU from now on would take seconds each time: the caller makes room and tries again.
            torch.cuda.empty_cache()
        return self._draw(seed, variant)

    def names(self, args: list[Any]) -> list[str]:
        """Return parameter names of positional arguments."""
        return entry.positional_names(self._forward, len(args))

    def _draw(self, seed: int, variant: ShapeVariant | None) -> Call:
        with torch.no_grad(), seeded(seed):
            args, kwargs = self._native()
            if variant is None:
                return args, kwargs
            wanted: dict[str, list[tuple[int, int]]] = {}
            for name, dimension, size in variant.changes:
                wanted.setdefault(name, []).append((dimension, size))
            calls = [(args, kwargs)]
            native = dict(self._named(calls[0]))
            num_draws = max(
                -(-size // native[name].shape[dimension])
                for name, dimension, size in variant.changes
            )
            calls += [self._native() for _ in range(num_draws - 1)]
            named = [dict(self._named(call)) for call in calls]
            resized = {
                id(named[0][name]): _resized([draw[name] for draw in named], changes)
                for name, changes in wanted.items()
            }
            args, kwargs = map_tensors(
                lambda tensor: resized.get(id(tensor), tensor), (args, kwargs)
            )
            return args, kwargs

    def _named(self, call: Call) -> list[tuple[str, torch.Tensor]]:
        return named_inputs(*call, self.names(call[0]))

    def _native(self) -> Call:
        if self._on_device:
            with torch.device(
                self._task.device
            ):  # drawing on a GPU takes milliseconds, drawing on a CPU and moving seconds
                return self._own(self._produce())
        return self._own(self._produce())

    def _own(self, call: Call) -> Call:
        dtype = getattr(torch, self._task.dtype) if self._task.dtype else None
        device = torch.device(self._task.device)
        held = [
            t.untyped_storage()._cdata for _, t in named_tensors(call) if t.layout is torch.strided
        ]
        self.shared = sharing(self._named(call)) if len(set(held)) < len(held) else ()

        def own(tensor: torch.Tensor) -> torch.Tensor:
            wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
            moved = tensor.detach().to(device=device, dtype=wanted)
            return (
                moved
                if moved.layout is not torch.strided or moved.data_ptr() != tensor.data_ptr()
                else _copy(moved)
            )

        return map_tensors(own, call)

    def _produce(self) -> Call:
        if not self._specs:
            return self._of_file()
        if not any(spec.fill == "like" for spec in self._specs):
            return [], {spec.name: from_spec(spec) for spec in self._specs}
        draws = [self._of_file()]
        native = self._by_parameter(draws[0])
        num_draws = max(_num_draws(spec, native.get(spec.name)) for spec in self._specs)
        draws += [self._of_file() for _ in range(min(num_draws, MAX_DRAWS) - 1)]
        named = [self._by_parameter(draw) for draw in draws]
        values = {
            s.name: _like(s, [draw[s.name] for draw in named]) if s.fill == "like" else from_spec(s)
            for s in self._specs
        }
        args, kwargs = draws[0]
        names = self.names(args)
        return [values.pop(name, value) for name, value in zip(names, args, strict=True)], {
            **kwargs,
            **values,
        }

    def _by_parameter(self, call: Call) -> dict[str, Any]:
        return {**dict(zip(self.names(call[0]), call[0], strict=True)), **call[1]}

    def _of_file(self) -> Call:
        value = getattr(self._module, entry.GET_INPUTS)()
        if isinstance(value, torch.Tensor):
            return [value], {}
        if isinstance(value, dict):
            return [], dict(value)
        if isinstance(value, (list, tuple)):
            return list(value), {}
        raise TaskError(
            f"get_inputs() returned {type(value).__name__}",
            "return a list with one entry a forward parameter",
        )

    def _check_names(self) -> None:
        parameters = entry.parameters(self._forward)
        names = [
            p.name
            for p in parameters
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY, p.POSITIONAL_ONLY)
        ]
        listed = ", ".join(names) or "none"
        like = any(spec.fill == "like" for spec in self._specs)
        if (not self._specs or like) and not callable(
            getattr(self._module, entry.GET_INPUTS, None)
        ):
            asked = [
                p.name for p in parameters if p.name in names and p.default is p.empty
            ] or names
            example = " ".join(f'--input "{name}=float32[64,1024]"' for name in asked[:4])
            raise TaskError(
                "the file has no get_inputs(), "
                + ("and `:like` means it" if like else "and no --input was given"),
                f"define get_inputs(), or describe forward's parameters: {example or listed}",
            )
        anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        for spec in self._specs:
            if spec.name not in names and not anything:
                raise TaskError(
                    f"forward has no parameter `{spec.name}`", f"its parameters are: {listed}"
                )
        given = {spec.name for spec in self._specs}
        required = [
            p.name
            for p in parameters
            if p.name in names and p.default is p.empty and p.name not in given
        ]
        if required and self._specs and not like:
            raise TaskError(
                f"no --input for parameter {', '.join(f'`{name}`' for name in required)}",
                f'add e.g. --input "{required[0]}=float32[64,1024]"',
            )


def guarded(drawer: Drawer, seed: int, variant: ShapeVariant | None = None) -> Call:
    """Call `drawer.draw`, with exceptions of the user's code turned into a TaskError.

    Raises:
        TaskError: always this.
    """
    try:
        return drawer.draw(seed, variant)
    except TaskError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise fault(
            "get_inputs() failed", error, "run get_inputs() in Python by itself and fix it"
        ) from error


def from_spec(spec: InputSpec) -> Any:
    """Return the value of one `--input`, drawn by the global generator."""
    if spec.dtype is None:
        return spec.value
    dtype = getattr(torch, spec.dtype)
    if spec.fill in ("ones", "zeros"):
        return torch.full(spec.shape, 1 if spec.fill == "ones" else 0, dtype=dtype)
    if spec.dtype in FLOATS:
        # Drawn in float32 at least: narrow generators are slow on a CPU and differ between versions.
        wide = torch.float64 if spec.dtype == "float64" else torch.float32
        fill = torch.rand if spec.fill == "rand" else torch.randn
        return fill(spec.shape, dtype=wide).to(dtype)
    if spec.dtype in INTEGERS:
        return torch.randint(0, spec.high, spec.shape, dtype=torch.int64).to(dtype)
    return torch.rand(spec.shape) < 0.5


def _num_draws(spec: InputSpec, native: Any) -> int:
    """Return how many native tensors make one of the spec's size.

    Raises:
        TaskError: `same_class_places` cannot apply to it.
    """
    if spec.fill != "like":
        return 1
    if not isinstance(native, torch.Tensor):
        raise TaskError(
            f"get_inputs() gives no tensor `{spec.name}` to be like",
            "say how to draw it: `:randn`, `:rand`, `<1000` …",
        )
    if native.dim() != len(spec.shape) or native.numel() == 0:
        problem = f"`{spec.name}` is {list(native.shape)} in get_inputs(), of which {list(spec.shape)} cannot be made"
        raise TaskError(problem, "say how to draw it: `:randn`, `:rand`, `<1000` …")
    return math.prod(-(-size // have) for size, have in zip(spec.shape, native.shape, strict=True))


def _like(spec: InputSpec, draws: list[torch.Tensor]) -> torch.Tensor:
    """Join draws along every dimension that is too short, cut where one is too long, in the native order of strides."""
    have = draws[0].shape

    def joined(number: int, dimension: int) -> torch.Tensor:
        if dimension < 0:
            return draws[number % len(draws)]
        count = -(-spec.shape[dimension] // have[dimension])
        parts = [joined(number * count + part, dimension - 1) for part in range(count)]
        return (torch.cat(parts, dimension) if count > 1 else parts[0]).narrow(
            dimension, 0, spec.shape[dimension]
        )

    dtype = getattr(torch, str(spec.dtype))
    return (
        draws[0].to(dtype)
        if have == spec.shape
        else _laid_out(joined(0, len(have) - 1), draws[0]).to(dtype)
    )


def _laid_out(tensor: torch.Tensor, native: torch.Tensor) -> torch.Tensor:
    """Return a dense copy in the native order of strides; never a view, which would keep all of a larger draw in memory."""
    order = sorted(range(native.dim()), key=lambda d: (-native.stride()[d], d))
    dense = tensor.permute(order).contiguous()
    if dense.untyped_storage().nbytes() > dense.numel() * dense.element_size():
        dense = dense.clone()
    return dense.permute([order.index(d) for d in range(len(order))])


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides; an expanded tensor stays expanded."""
    if tensor.numel() == 0 or any(
        s == 0 and n > 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        return tensor
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)


def _resized(draws: list[torch.Tensor], changes: list[tuple[int, int]]) -> torch.Tensor:
    """Join draws along the changed dimensions, cut to size, in the native order of strides."""
    native = draws[0]
    for dimension, size in changes:
        draws = [
            _fit(draws[index:] + draws[:index], dimension, size) for index in range(len(draws))
        ]
    return _laid_out(draws[0], native)


def _fit(draws: list[torch.Tensor], dimension: int, size: int) -> torch.Tensor:
    have = draws[0].shape[dimension]
    num_whole, rest = divmod(size, have)
    parts = (
        [*draws[:num_whole], draws[num_whole].narrow(dimension, 0, rest)]
        if rest
        else draws[:num_whole]
    )
    return torch.cat(parts, dimension) if len(parts) > 1 else parts[0]
