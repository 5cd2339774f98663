"""ATen operators that a plan may contain, and their writes.

The rule is one of form, not a list of names: an operator of the namespace `aten` that draws no random numbers, whose result's shape and
control flow on the host do not depend on values, and whose operands are tensors and plain data. The few names below obey the form and are
excluded nevertheless.
"""

from __future__ import annotations

from typing import Any

import torch

from dvk.harness.launch_plans.calls import Layout

DENIED = {
    "from_file",
    "set_",
    "set",
    "resize_",
    "resize",
    "resize_as_",
    "record_stream",
    "_pin_memory",
    "pin_memory",
    "is_pinned",
    "_local_scalar_dense",
    "item",
    "_resize_output_",
    "_cudnn_init_dropout_state",
    "_copy_from",
    "_copy_from_and_resize",
    "_print",
    "sym_storage_offset",
    "_assert_async",
    "_assert_tensor_metadata",
    "_record_function_enter_new",
    "_record_function_enter",
    "_record_function_exit",
}
"""Files, storages under other tensors, streams, transfers with the host, asserts that stop the device."""
BY_NUMBER = {torch.ops.aten.index.Tensor}
"""Operators that take masks, so that the result's shape depends on values, as well as numbers, so that it does not."""
DEVICES = ("cuda", "cpu")


def refusal(func: Any, encoded: tuple[list[Any], dict[str, Any]], made: list[Layout]) -> str | None:
    """Return why a plan cannot contain a call of `func`; None if it can."""
    name = func.overloadpacket.__name__
    if func in BY_NUMBER:
        return None
    if torch.Tag.nondeterministic_seeded in func.tags and _dropout(func, *encoded) != 0:
        return f"it draws random numbers ({name})"
    if depends_on_values(func):
        return f"the result of {name} on the host depends on values"
    if name in DENIED:
        return f"{name} cannot be replayed"
    if any(layout.device not in DEVICES for layout in made):
        return f"{name} makes a tensor on neither the GPU nor the host"
    return None


def _dropout(func: Any, args: Any, kwargs: Any) -> Any:
    """Return the probability with which an operator drops elements, by default its default; None if it has none."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.name in ("dropout", "dropout_p"):
            given = kwargs.get(
                argument.name, args[position] if position < len(args) else argument.default_value
            )
            return given or 0
    return None


def depends_on_values(func: Any, args: Any = ()) -> bool:
    """Whether the shape or value of the result on the host depends on tensors' values."""
    if func in BY_NUMBER:
        return any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags))


def allowed(op: str) -> Any:
    """Return the operator that a plan names, if it is allowed.

    Raises:
        KeyError: there is no such operator, or it is refused.
    """
    _, name, overload = op.split(".")
    packet = getattr(torch.ops.aten, name, None)
    func = getattr(packet, overload, None) if packet is not None else None
    if func is None or refusal(func, ([], {}), []) is not None:
        raise KeyError(op)
    return func


def written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Return tensors among the operands that the operator writes, by its schema."""
    result: list[torch.Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        if isinstance(value, torch.Tensor):
            result.append(value)
        elif isinstance(value, (list, tuple)):
            result.extend(v for v in value if isinstance(v, torch.Tensor))
    return result
