"""A module call with structured arguments and result, as torch.export sees it: tensors in, tensors out.

A flat forward replaces the module's own during the capture, so that weights and submodules keep their names. This module keeps the encoded
structure of the arguments and of the result (`structures`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dvk.composer.ir import structures
from dvk.composer.ir.errors import CannotCompose

PLAIN = (bool, int, float, str, type(None))


class ModuleCall:
    """One call of a module's forward.

    Args:
        args: values of the parameters `names`; the last `by_name` are passed by keyword.
        home: globals of the user's file, whose text drop-ins hold.

    Attributes:
        tensors: every tensor among the arguments, by its path (`x`, `batch.mask`, `xs.0`).
        constants: parameters that are plain values.
        structure: the other parameters that are not tensors, encoded.
        rolls: loops over time steps are shortened.
        loops: steps of the loops that were shortened in the last traced call (`time_loops`).
        tree: the encoded result, with indices into the flat result in place of value names; filled by the last traced call.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        args: Sequence[Any],
        names: Sequence[str],
        by_name: int = 0,
        home: dict[str, Any] | None = None,
    ):
        self.model, self.args, self.names, self.by_name = model, list(args), list(names), by_name
        self.home = structures.namespace_of(model) if home is None else home
        self.tensors: dict[str, torch.Tensor] = {}
        self.constants: dict[str, Any] = {}
        self.structure: dict[str, Any] = {}
        self.tree: Any = None
        self.loops: list[range] = []
        self.rolls = False
        for name, value in zip(names, args, strict=False):
            if isinstance(value, PLAIN):
                self.constants[name] = value
                continue
            tree, leaves = structures.taken(value, name, self.home)
            if not isinstance(value, torch.Tensor):
                self.structure[name] = tree
            for path, tensor in leaves:
                # A tensor that is passed twice would be one input.
                twice = any(tensor is other for other in self.tensors.values())
                self.tensors[path] = tensor.detach().clone() if twice else tensor

    def arguments(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The call's args and kwargs with these tensors substituted."""
        rest = iter(tensors)
        given = [structures.filled(value, lambda _: next(rest)) for value in self.args]
        split = len(given) - self.by_name
        return given[:split], dict(zip(self.names[split:], given[split:], strict=True))

    def flat_result(self, result: Any) -> list[Any]:
        """The tensors and symbolic numbers of a result, each once; `tree` receives its structure."""
        found: list[Any] = []
        numbers: dict[int, int] = {}

        def leaf(value: Any) -> Any:
            if not isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
                return None
            if id(value) not in numbers:
                numbers[id(value)] = len(found)
                found.append(value)
            return {"ref": numbers[id(value)]}

        self.tree = structures.StructureEncoder(leaf, self.home).encode(result)
        return found

    @contextmanager
    def flat(self) -> Iterator[None]:
        """Patch the module to take `tensors` and return a flat list. The module's own hooks also run around a drop-in."""
        model, forward = self.model, self.model.forward
        before = model.__dict__.get("forward")
        hooks: Mapping[str, Any] = {
            name: model.__dict__[name] for name in ("_forward_hooks", "_forward_pre_hooks")
        }

        def called(*tensors: Any) -> list[Any]:
            args, kwargs = self.arguments(tensors)
            held = [
                (value, list(value.values() if isinstance(value, dict) else value))
                for value in _containers((args, kwargs))
            ]
            result = forward(*args, **kwargs)
            for value, were in held:
                now = list(value.values() if isinstance(value, dict) else value)
                if len(now) != len(were) or any(a is not b for a, b in zip(now, were, strict=True)):
                    raise CannotCompose("forward() changes a list or dict among its arguments")
            return self.flat_result(result)

        try:
            model.__dict__.update({name: type(kept)() for name, kept in hooks.items()})
            model.__dict__["forward"] = called
            yield
        finally:
            model.__dict__.update(hooks)
            del model.__dict__["forward"]
            if before is not None:
                model.__dict__["forward"] = before


def _containers(tree: Any) -> Iterator[Any]:
    """Every list and dict of a call except `tree` itself."""
    for value in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(value, (list, dict)):
            yield value
        if isinstance(value, (list, tuple, dict)):
            yield from _containers(value)


def positional_form(
    model: Any, args: list[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], list[str], int]:
    """Normalise a call to positional arguments where possible: every value, the names of those passed by keyword, and how many must still
    be passed by keyword."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    values, names, rest = list(args), [], dict(kwargs)
    for parameter in parameters[len(args) :]:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name not in rest:
            break
        values.append(rest.pop(parameter.name))
        names.append(parameter.name)
    return [*values, *rest.values()], [*names, *rest], len(rest)
