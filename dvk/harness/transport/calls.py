"""Calls of a module and the format of their answers, for referee and runner alike.

A forward is seeded and without gradients. With `backward`, floating inputs and parameters require
gradients and every differentiable output is pulled back along a cotangent drawn from the seed, in
eighths between -1 and 1: exact in every dtype, so that the reference, its float64 twin and a
candidate all pull along the same direction.

`describe` flattens an answer in a canonical order, dictionaries by key, so that equal texts mean equal nesting in all processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from dvk.tasks.state import seeded
from dvk.tasks.trees import map_tensors, take_apart_kinds

Buffers = dict[str, torch.Tensor]
MOST_LEAVES = 4096
"""Values that an answer may hold."""
MAX_REPR = 200
"""Characters kept of an object that is neither a tensor nor a plain value."""


class Called(NamedTuple):
    """A call's result, and the final values of the inputs that it writes."""

    returned: Any
    written: dict[str, torch.Tensor]
    """By name of the input; their memory belongs to this call alone."""


class NotDifferentiable(Exception):
    """No output depends on anything with a gradient; the message explains it to people."""


def call(
    model: nn.Module,
    args: list[Any],
    kwargs: dict[str, Any],
    seed: int,
    backward: bool = False,
    under: AbstractContextManager[Any] | None = None,
    separate: bool = True,
    fixed: Collection[int] = (),
    along: list[torch.Tensor] | None = None,
) -> Any:
    """One call with all random generators seeded; where `separate`, a returned buffer is copied, since buffers are put back.

    With `backward` the result is {"output": …, "input_grads": [one a floating input tensor], "weight_grads":
    {parameter: …}}; what the outputs do not depend on has zeros. Outputs are pulled back `along` these cotangents; an empty list
    is filled with those drawn from the seed. `under` is entered around the module's own work. Input tensors
    at the positions `fixed`, which it writes, get no gradient.

    Raises:
        NotDifferentiable: `backward`, and no output requires a gradient.
    """
    if backward:
        return _differentiated(
            model, args, kwargs, seed, under or nullcontext(), separate, fixed, along
        )
    with torch.no_grad(), seeded(seed), under or nullcontext():
        result = model(*args, **kwargs)
    return apart(model, result) if separate else result


@contextmanager
def in_mode(model: nn.Module, other: bool) -> Iterator[None]:
    """Run the body in the other of train and eval mode, if requested."""
    flags = {module: module.training for module in model.modules()} if other else {}
    if other:
        model.train(not model.training)
    try:
        yield
    finally:
        for module, training in flags.items():
            module.training = training


def describe(result: Any) -> tuple[list[Any], str]:
    """Return the leaves of a result and the canonical text of its nesting.

    Leaves are tensors, or constants as JSON has them: None, bool, int, float, str, and {"object": type and repr}
    for everything else.
    """
    leaves: list[Any] = []
    if isinstance(result, Called):
        text = _text(result.returned, "", leaves, [])
        return [*leaves, *result.written.values()], with_written(text, len(result.written))
    return leaves, _text(result, "", leaves, [])


def with_written(text: str, number: int) -> str:
    """Return the text of a call's nesting, with this many written inputs after its result."""
    return f"{text}, inputs after the call: ({', '.join('*' * number)})" if number else text


def leaf_names(result: Any) -> list[str]:
    """Return a name for each leaf of `describe`: `best.0`, `output` for a lone one."""
    names: list[str] = []
    if isinstance(result, Called):
        _text(result.returned, "", [], names)
        return [*names, *(after_the_call(name) for name in result.written)]
    _text(result, "", [], names)
    return names


def after_the_call(name: str) -> str:
    """Return the name of a written input among the outputs."""
    return f"input {name} after the call"


def buffers_of(model: nn.Module) -> Buffers:
    """Return copies of all buffers."""
    return {name: buffer.detach().clone() for name, buffer in model.named_buffers()}


def put_buffers(model: nn.Module, values: Buffers) -> None:
    """Restore the buffers to `values`; buffers not named there stay.

    Equal values are not written: code that caches values computed from buffers, e.g. a norm folded into the weights before it, must
    recompute them after each write, which normal use does not cause before each call.
    """
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if (
                name in values
                and values[name].shape == buffer.shape
                and not _same(buffer, values[name])
            ):
                buffer.copy_(values[name])


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether values are equal bit for bit, so that −0.0 is not 0.0; tensors that cannot be compared count as different."""
    if type(one) is not torch.Tensor or one.device != other.device or one.dtype is not other.dtype:
        return False
    if one.is_meta or one.is_quantized or not (one.layout is other.layout is torch.strided):
        return False
    return torch.equal(_bits(one), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def apart(model: nn.Module, result: Any) -> Any:
    """Return a result whose tensors share no memory with the module's buffers: those that do are copied."""
    held = {buffer.untyped_storage().data_ptr() for buffer in model.buffers()}

    def own(tensor: torch.Tensor) -> torch.Tensor:
        shares = tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() in held
        return tensor.clone() if shares else tensor

    return map_tensors(own, result) if held else result


def _differentiated(
    model: nn.Module,
    args: list[Any],
    kwargs: dict[str, Any],
    seed: int,
    under: AbstractContextManager[Any],
    separate: bool,
    fixed: Collection[int],
    along: list[torch.Tensor] | None,
) -> dict[str, Any]:
    args, kwargs, inputs = watched(args, kwargs, fixed)
    weights = trained(model)
    flags = {name: weight.requires_grad for name, weight in weights.items()}
    try:
        for weight in weights.values():
            weight.requires_grad_(True)
        with torch.enable_grad(), seeded(seed), under:
            result = model(*args, **kwargs)
        outputs = pulled(result)
        if not outputs:
            raise NotDifferentiable(
                "no output depends on an input or a weight through operators that have a gradient"
            )
        cotangents = _cotangents(outputs, seed, along)
        sources = [*inputs, *weights.values()]
        with torch.enable_grad(), seeded(seed), under:
            tensors = torch.autograd.grad(outputs, sources, cotangents, allow_unused=True)
    finally:
        for name, weight in weights.items():
            weight.requires_grad_(flags[name])
    with torch.no_grad():
        output = map_tensors(lambda tensor: tensor.detach(), result)
        output = apart(model, output) if separate else output
    return with_gradients(output, inputs, weights, tensors)


def watched(
    args: list[Any], kwargs: dict[str, Any], fixed: Collection[int] = ()
) -> tuple[list[Any], dict[str, Any], list[torch.Tensor]]:
    """Return a call's arguments with floating tensors that require gradients, except at the positions `fixed`, and those tensors."""
    inputs: list[torch.Tensor] = []
    numbers = count()

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if next(numbers) in fixed or not _continuous(tensor):
            return tensor
        inputs.append(tensor.detach().requires_grad_(True))
        return inputs[-1]

    args, kwargs = map_tensors(leaf, (args, kwargs))
    return args, kwargs, inputs


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters whose gradients are compared: those that are not frozen; all of a module that is frozen as a whole."""
    floats = {name: weight for name, weight in model.named_parameters() if _continuous(weight)}
    return {name: weight for name, weight in floats.items() if weight.requires_grad} or floats


def pulled(result: Any) -> list[torch.Tensor]:
    """Return the outputs that have a gradient."""
    return [
        t
        for t in describe(result)[0]
        if isinstance(t, torch.Tensor) and _continuous(t) and t.requires_grad
    ]


def with_gradients(
    output: Any,
    inputs: list[torch.Tensor],
    weights: dict[str, nn.Parameter],
    tensors: Sequence[torch.Tensor | None],
) -> dict[str, Any]:
    """Return the answer of a call with gradients, in a format that does not depend on how autograd leaves them."""
    grads = [
        (torch.zeros_like(s) if g is None else g.detach()).contiguous()
        for s, g in zip([*inputs, *weights.values()], tensors, strict=True)
    ]
    return {
        "output": output,
        "input_grads": grads[: len(inputs)],
        "weight_grads": dict(zip(weights, grads[len(inputs) :], strict=True)),
    }


def _cotangents(
    outputs: list[torch.Tensor], seed: int, along: list[torch.Tensor] | None
) -> list[torch.Tensor]:
    if along:
        if [t.shape for t in along] != [t.shape for t in outputs]:
            raise ValueError("outputs of other sizes than the cotangents")
        return [t.to(output.dtype) for t, output in zip(along, outputs, strict=True)]
    with seeded(seed + 1):
        drawn = [_cotangent(output) for output in outputs]
    if along is not None:
        along.extend(drawn)
    return drawn


def _continuous(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _cotangent(output: torch.Tensor) -> torch.Tensor:
    eighths = torch.randint(-8, 9, output.shape, dtype=torch.int8, device=output.device)
    return eighths.to(output.dtype) / 8


def _text(value: Any, path: str, leaves: list[Any], names: list[str]) -> str:
    children = None if isinstance(value, torch.Tensor) else _children(value)
    if children is None:
        if len(leaves) == MOST_LEAVES:
            raise ValueError(f"it returns more than {MOST_LEAVES:,} values")
        leaves.append(value if isinstance(value, torch.Tensor) else _constant(value))
        names.append(path or "output")
        return "*"
    parts = [
        (label, _text(child, f"{path}.{step}" if path else step, leaves, names))
        for step, label, child in children
    ]
    inner = ", ".join(f"{label}: {text}" if label else text for label, text in parts)
    kind = type(value)
    if kind is list:
        return f"[{inner}]"
    if kind is tuple:
        return f"({inner})"
    return f"{'' if kind is dict else kind.__name__}{{{inner}}}"


def _children(value: Any) -> list[tuple[str, str, Any]] | None:
    """Yield (step of the path, label in the text, child) of one level, dictionaries in the order of their keys; None for a leaf."""
    # pytree's walk leaves a reference cycle, which keeps the tensors of every call while the collector rests.
    if type(value) in (list, tuple):
        return [(str(place), "", child) for place, child in enumerate(value)]
    if type(value) is dict:
        listed = [(str(key), repr(str(key)), child) for key, child in value.items()]
        return sorted(listed, key=lambda entry: entry[0])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(name, repr(name), getattr(value, name)) for name in value._fields]
    if dataclasses.is_dataclass(value):
        take_apart_kinds(value)
    found, spec = pytree.tree_flatten_with_path(value, is_leaf=lambda node: node is not value)
    if spec.is_leaf():
        return None
    named: Iterator[tuple[str, Any]] = ((_step(path[0]), child) for path, child in found)
    if isinstance(value, (list, tuple)):
        return [(step, "", child) for step, child in named]
    entries = [(step, repr(step), child) for step, child in named]
    return sorted(entries, key=lambda entry: entry[0]) if isinstance(value, dict) else entries


def _step(key: Any) -> str:
    return str(getattr(key, "idx", getattr(key, "key", getattr(key, "name", key))))


def _constant(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    shown = repr(value)[:MAX_REPR]
    # A default repr contains an address, which differs between processes.
    return {"object": type(value).__name__ + ("" if " at 0x" in shown else f" {shown}")}
