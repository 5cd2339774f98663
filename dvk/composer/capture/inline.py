"""Inline blocks of forward(), which torch.export keeps as nested graphs, into the graph around them.

`torch.no_grad()` and others change nothing without gradients. `torch.autocast(enabled=False)` leaves operators unchanged. Under an enabled
autocast every operator runs on fake tensors with autocast on and off: a cast that occurs only when it is on becomes a separate operator
`to`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dvk import aten
from dvk.composer.capture.blame import with_location
from dvk.composer.ir.errors import CannotCompose

DEVICES = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
"""Device → PyTorch's name of autocast's dispatch key there."""
COMPOSITE = "CompositeImplicitAutograd"
"""The key of operators that call others, which autocast may cast."""
AUTOCAST_INSIDE = aten.having("autocast_inside")
"""Composite operators that autocast affects only inside: their operands are cast."""


def inline(program: Any, ambient: Sequence[tuple[Any, ...]] = ()) -> None:
    """Inline all nested graphs of an exported program.

    Args:
        ambient: settings of the autocast that it was exported under; its casts become operators.

    Raises:
        CannotCompose: a nested graph cannot be inlined: control flow, or gradients wanted inside.
    """
    if not ambient and all(node.op != "get_attr" for node in program.graph.nodes):
        return
    graph = torch.fx.Graph()
    signature, weights = program.graph_signature, program.state_dict
    wanting = {
        name for name, path in signature.inputs_to_parameters.items() if weights[path].requires_grad
    }
    wanting |= {
        node.name
        for node in program.graph.nodes
        if node.name in signature.user_inputs and _wants_gradients(node)
    }
    writer = _Inliner(graph, wanting)
    graph.output(writer.run(program.graph_module, {}, list(ambient)))
    program._graph_module = torch.fx.GraphModule(program.graph_module, graph)


class _Inliner:
    def __init__(self, graph: torch.fx.Graph, wanting: set[str]):
        self.graph, self.wanting = graph, wanting

    def run(self, module: Any, given: dict[Any, Any], casting: list[tuple[Any, ...]]) -> Any:
        """Copy the nodes of a graph module and return its results; `given` maps its placeholders."""
        known: dict[Any, Any] = dict(given)

        def mapped(value: Any) -> Any:
            return torch.fx.map_arg(value, known.__getitem__)

        for node in module.graph.nodes:
            if node.op == "placeholder" and node in known or node.op == "get_attr":
                continue
            if node.op == "output":
                return mapped(node.args[0])
            nested = self._nested(module, node)
            if nested is not None:
                inner, operands, more = nested
                holders = [n for n in inner.graph.nodes if n.op == "placeholder"]
                known[node] = _Parts(
                    self.run(
                        inner, dict(zip(holders, mapped(operands), strict=True)), [*casting, *more]
                    )
                )
            elif node.target is operator.getitem and isinstance(known.get(node.args[0]), _Parts):
                known[node] = known[node.args[0]].values[node.args[1]]
            elif any(may_cast(node.target, device) for device, *_ in casting):
                known[node] = self._cast(node, mapped, casting)
            else:
                known[node] = self.graph.node_copy(node, known.__getitem__)
        return None

    def _nested(self, module: Any, node: Any) -> tuple[Any, Any, list[tuple[Any, ...]]] | None:
        """Split a nested graph call into the graph, its operands, and its autocast settings."""
        if node.op != "call_function" or not isinstance(
            node.target, torch._ops.HigherOrderOperator
        ):
            return None
        name = node.target.name()
        if name == "wrap_with_set_grad_enabled":
            enabled, inner, *operands = node.args
            graph = getattr(module, inner.target)
            if enabled and any(
                isinstance(operand, torch.fx.Node) and operand.name in self.wanting
                for operand in operands
            ):
                raise CannotCompose("torch.enable_grad() around values that require gradients")
            return graph, operands, []
        if name == "wrap_with_autocast":
            *settings, inner = node.args[:5]
            return getattr(module, inner.target), list(node.args[5:]), [tuple(settings)]
        if name == "tag_activation_checkpoint":
            return getattr(module, node.args[0].target), list(node.args[1:]), []
        raise with_location(CannotCompose(f"a nested graph, {name}, inside forward()"), node)

    def _cast(self, node: Any, mapped: Callable[[Any], Any], casting: list[tuple[Any, ...]]) -> Any:
        """Copy an operator with the casts that autocast applies to its operands."""
        found = casts(node, casting)
        operands: dict[Any, Any] = {}

        def cast(operand: Any) -> Any:
            new = mapped(operand)
            dtype = found.get(operand)
            if dtype is None:
                return new
            if operand not in operands:
                operands[operand] = made = self.graph.call_function(
                    torch.ops.aten.to.dtype, (new, dtype)
                )
                made.meta = {
                    key: held for key, held in node.meta.items() if key == "nn_module_stack"
                }
                made.meta["val"] = _val(operand).to(dtype)
            return operands[operand]

        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), cast)
        made = self.graph.create_node(node.op, node.target, args, kwargs, node.name)
        made.meta = dict(node.meta)
        return made


class _Parts:
    """The results of a nested graph."""

    def __init__(self, values: Any):
        self.values = values


def _val(node: Any) -> Any:
    return node.meta.get("val")


def _wants_gradients(node: Any) -> bool:
    value = _val(node) if isinstance(node, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.requires_grad


class _Noted(TorchDispatchMode):
    """Records the types that tensors are cast to."""

    def __init__(self) -> None:
        super().__init__()
        self.casts: dict[int, torch.dtype] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") is not None:
            self.casts[id(args[0])] = kwargs["dtype"]
        return func(*args, **kwargs)


def may_cast(target: Any, device: str) -> bool:
    """Whether autocast on a device has anything to do with an operator: code that is left to PyTorch is called as it is."""
    if not isinstance(target, torch._ops.OpOverload) or device not in DEVICES:
        return False
    known = torch._C._dispatch_has_kernel_for_dispatch_key
    return known(target.name(), DEVICES[device]) or known(target.name(), COMPOSITE)


def casts(node: Any, casting: list[tuple[Any, ...]]) -> dict[Any, torch.dtype]:
    """Operands of an operator that autocast casts, with the target types.

    Raises:
        CannotCompose: autocast does more to the operator than casting its operands.
    """
    operands = [
        n
        for n in node.all_input_nodes
        if isinstance(_val(n), torch.Tensor) and _val(n).is_floating_point()
    ]
    if not operands:
        return {}
    with_casts, wanted = _run(node, casting, {})
    without, plain = _run(node, [], {})
    found = {
        n: dtype
        for n in operands
        if (dtype := with_casts.get(id(_val(n)))) is not None and without.get(id(_val(n))) != dtype
    }
    if wanted is None:
        raise CannotCompose(f"{node.target} under autocast")
    if not found and wanted == plain:
        return {}
    low = next(
        (settings[1] for settings in reversed(casting) if settings[2]), None
    ) or torch.get_autocast_dtype(casting[-1][0])
    for casts in (
        found,
        dict.fromkeys(operands, low) if node.target._opname in AUTOCAST_INSIDE else None,
    ):
        if casts and _run(node, [], casts)[1] == wanted:
            return casts
    raise CannotCompose(f"{node.target} under autocast")


def _run(
    node: Any, casting: list[tuple[Any, ...]], casts: dict[Any, torch.dtype]
) -> tuple[dict[int, torch.dtype], Any]:
    """The casts of an operator on fake tensors, and the types of its results; None if it raises."""
    from torch._guards import detect_fake_mode

    values = [_val(n) for n in node.all_input_nodes]

    def value(operand: Any) -> Any:
        held = _val(operand)
        return held.to(casts[operand]) if operand in casts else held

    noted = _Noted()
    try:
        with ExitStack() as stack:
            if (mode := detect_fake_mode(values)) is not None:
                stack.enter_context(mode)
            stack.enter_context(torch.no_grad())
            for device, dtype, enabled, _ in casting:
                stack.enter_context(
                    torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=False)
                )
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value)
            with noted:
                result = node.target(*args, **kwargs)
    except Exception:  # noqa: BLE001 - mixed types are refused by some operators, each in its own way
        return noted.casts, None
    return noted.casts, [
        t.dtype for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)
    ]
