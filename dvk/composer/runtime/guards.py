"""Functions that travel inside every drop-in: their source text is copied into `best.py`.

They may use only torch and the standard library, and each must stand alone: a drop-in does not import dvk. Tests call them as ordinary
functions.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from dvk.composer.runtime.facts import dvk_holder, dvk_part

dvk_kept: list[dict] = []
"""State of functions of `frame`, one dictionary per function; in a drop-in, a separate list."""
dvk_steps: list[int] = [0]
"""Number of times an optimizer has changed bound weights; in a drop-in, a separate list, as `dvk_memory`."""
dvk_memory: set[int] = set()
"""Addresses of bound memory."""


def dvk_address(tensor: torch.Tensor) -> int:
    """What tells the memory of one tensor from another's."""
    storage = tensor.untyped_storage()
    return (
        storage.data_ptr() if type(tensor) in (torch.Tensor, torch.nn.Parameter) else storage._cdata
    )  # a recorder's have no address


def dvk_apart(tensors: tuple, written: tuple) -> bool:
    """Written tensors share no memory with other arguments or weights: a graph does not show such sharing."""
    every = [dvk_address(t) for t in tensors]
    return all(every.count(dvk_address(t)) == 1 for t in written if t.numel())


def dvk_elsewhere(tensors: tuple, written: set) -> bool:
    """Arguments share no memory with the weights that a program writes."""
    for tensor in tensors:
        if dvk_address(tensor) in written:
            return False
    return True


def dvk_is_plain(value: object) -> bool:
    """A number, a text, or a tuple of these: it cannot change, and comparing it gives a truth value."""
    if type(value) is tuple:
        return all(map(dvk_is_plain, value))
    return value is None or type(value) in (bool, int, float, str, torch.dtype)


class dvk_watch:
    """State that may change between two calls: what was `read` except `bound` weights, hooks (except in `left`), and the submodules."""

    # An object and no container: PyTorch looks into containers that a module holds.
    def __init__(
        self,
        module: torch.nn.Module,
        read: tuple,
        left: tuple[str, ...] = (),
        bound: tuple[str, ...] = (),
    ):
        self.hooks = [
            torch.nn.modules.module._global_forward_hooks,
            torch.nn.modules.module._global_forward_pre_hooks,
        ]
        # Plain values of modules with the same names are compared at once; other values by identity. A name that a submodule
        # does not hold shows in the number of those that it holds.
        plain: dict[tuple, list[dict]] = {}
        rest: list[tuple[dict, str]] = []
        parts: dict[int, torch.nn.Module] = {id(module): module}
        for path, names in ((path, names) for paths, names in read for path in paths):
            part = dvk_part(module, path)
            if part is None:
                continue
            parts[id(part)] = part
            if path and path not in left:
                self.hooks += [part._forward_hooks, part._forward_pre_hooks]
            kept = []
            for name in names:
                held = dvk_holder(part, name)
                if held is part.__dict__ and dvk_is_plain(held[name]):
                    kept.append(name)
                elif (
                    name not in ("__class__", "_modules")
                    and f"{path}.{name}".lstrip(".") not in bound
                ):
                    if held is not None or not path:
                        rest.append((part.__dict__ if held is None else held, name))
            if kept:
                plain.setdefault(tuple(kept), []).append(part.__dict__)
        self.plain = []
        for kept_names, helds in plain.items():
            get = operator.itemgetter(*kept_names)
            self.plain.append((get, helds, list(map(get, helds))))
        self.owners = [owner for owner, _ in rest]
        self.keys = [key for _, key in rest]
        self.values = list(map(dict.get, self.owners, self.keys))
        self.sized = [part.__dict__ for part in parts.values() if part is not module]
        self.size = sum(map(len, self.sized))
        modules = [part._modules for part in parts.values()]
        helds = [held for held in modules if isinstance(held, dict) and held]
        self.inside = [(held, tuple(held.values())) for held in helds]

    def same(self) -> bool:
        """Attributes and modes that were read are as they were, and no submodule was replaced."""
        try:
            for get, helds, values in self.plain:
                if list(map(get, helds)) != values:
                    return False
        except KeyError:
            return False
        for held, children in self.inside:
            if tuple(held.values()) != children:
                return False
        if self.keys and not all(
            map(operator.is_, map(dict.get, self.owners, self.keys), self.values)
        ):
            return False
        return sum(map(len, self.sized)) == self.size


def dvk_uncast(device: str, run: Callable[..., Any], given: tuple) -> Any:
    """What `run` computes with autocast off, in a call under autocast."""
    torch.set_autocast_enabled(device, False)
    try:
        return run(*given)
    finally:
        torch.set_autocast_enabled(device, True)


def dvk_cast_off(device: str, run: Callable[[], Any]) -> Any:
    """What `run` computes with autocast off, whether or not it is on around it."""
    with torch.autocast(device, enabled=False):
        return run()


def dvk_miscast(device: str, under: torch.dtype | None, same: tuple = ()) -> str:
    """How autocast is not what kernels were made for; empty if it is."""
    kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    if kind is under or under is None and kind in same:
        return ""
    if under is None:
        return f"the call is under autocast to {str(kind)[6:]}, which casts operands"
    other = f"under autocast to {str(kind)[6:]}" if kind is not None else "not under autocast"
    return f"the call is {other}; kernels exist for calls under autocast to {str(under)[6:]}"


def dvk_plain() -> bool:
    """The call is plain: not traced, vectorised (vmap) or under forward-mode differentiation, and no mode sees its operators.

    The caller has asked before whether it is being compiled.
    """
    native = torch._C
    return (
        not native._is_tracing()
        # A mode that records operators, or replaces tensors; the recorder of kernel launches is one, and wants the kernels.
        and (not native._len_torch_dispatch_stack() or "dvk_record" in sys.modules)
        and torch.autograd.forward_ad._current_level < 0
        and native._functorch.peek_interpreter_stack() is None
    )


def dvk_given(names: tuple[str, ...], args: tuple, kwargs: dict) -> tuple | None:
    """A call's arguments in the order of the programs' parameters; None if it omits one, or has others."""
    names = names[len(args) : len(args) + len(kwargs)]
    return (
        (*args, *(kwargs[name] for name in names))
        if len(names) == len(kwargs) and all(name in kwargs for name in names)
        else None
    )


def dvk_wants(module: torch.nn.Module, tensors: tuple) -> bool:
    """Gradients are wanted, of an argument or of a weight."""
    held = module.__dict__.get("_dvk_weights", ())
    return (
        any(t.requires_grad for t in tensors)
        or any(t.requires_grad for t in held)
        or any(t.requires_grad for t in module.parameters())
    )


def dvk_bind(module: torch.nn.Module, paths: tuple[str, ...]) -> tuple[tuple, list]:
    """The tensors at dotted paths, with their owners: lookups through the module cost microseconds per call."""
    places = []
    for path in paths:
        *owners, key = path.split(".")
        owner = module
        for name in owners:
            owner = getattr(owner, name)
        kinds = (
            owner.__dict__.get("_parameters") or {},
            owner.__dict__.get("_buffers") or {},
            owner.__dict__,
        )
        held = next(kind for kind in kinds if key in kind)
        places.append((held, key, held[key], held[key].data_ptr()))
        dvk_memory.add(held[key].untyped_storage().data_ptr())
    helds, keys, tensors, addresses = zip(*places) if places else ((), (), (), ())
    return tensors, [helds, keys, tensors, list(addresses)]


def dvk_bound(places: list) -> bool:
    """Every tensor is still the bound one, in the same memory."""
    helds, keys, tensors, addresses = places
    return (
        all(map(operator.is_, map(dict.get, helds, keys), tensors))
        and list(map(torch.Tensor.data_ptr, tensors)) == addresses
    )


def dvk_stepping(memory: set[int], steps: list[int]) -> Callable[..., None]:
    """Hook after a step of any optimizer: fused ones write weights without a version bump."""

    def stepped(optimizer: Any, *_: object) -> None:
        try:
            if memory and any(
                p.untyped_storage().data_ptr() in memory
                for group in optimizer.param_groups
                for p in group["params"]
            ):
                steps[0] += 1
        except Exception:  # noqa: BLE001 - parameters without separate memory: they may be views of what was bound
            steps[0] += 1

    stepped._torchdynamo_disable = True  # type: ignore[attr-defined]  # as torch.compiler.disable, without its imports
    return stepped


def dvk_counters(module: torch.nn.Module) -> list[torch.Tensor]:
    """Batch counters of batch norms that write their statistics without a version bump."""
    found = [
        b
        for part in module.modules()
        if (b := part._buffers.get("num_batches_tracked")) is not None
    ]
    return [b for b in found if not b.is_inference()]


def dvk_written(counters: list[torch.Tensor]) -> list[int]:
    """A value that differs once an optimizer or batch norm has written weights."""
    return [dvk_steps[0], *[b._version for b in counters]]


def dvk_renew(module: torch.nn.Module) -> tuple[tuple, dict]:
    """The weights, and the tensors derived from them: empty once one of them is written or replaced. Nothing is derived from those
    that the programs write.

    Some writes leave no version bump: those through `.data` or under inference mode, and those that `dvk_written` detects.
    """
    weights = module.__dict__.get("_dvk_weights", ())
    known = module.__dict__.get("_dvk_made")
    if known is not None and len(known[3]) == len(weights):
        same = known[3] is weights or all(map(operator.is_, known[3], weights))
        if same and known[0] == dvk_state(weights, known[4]):
            return weights, known[1]
    writes = getattr(module, "_dvk_writes", ())
    read = [t for n, t in enumerate(weights) if n not in writes and not t.is_inference()]
    # Holding on to the weights' memory keeps another tensor from taking its address.
    kept = [t.detach() for t in weights]
    known = module.__dict__["_dvk_made"] = (dvk_state(weights, read), {}, kept, weights, read)
    # Both at once: another thread may bind other weights at any time.
    return weights, known[1]


def dvk_state(weights: tuple, read: list) -> tuple:
    """Addresses, layouts and sizes of the weights, and versions of those that are read. `map` takes a third of a loop's time."""
    tensor = torch.Tensor
    return (
        list(map(tensor.data_ptr, weights)),
        list(map(tensor.is_contiguous, weights)),
        list(map(tensor.numel, weights)),
        list(map(operator.attrgetter("_version"), read)),
    )


def dvk_drop(module: torch.nn.Module) -> None:
    """Recompute everything derived from the weights, graphs included: a change may have left no version bump."""
    module.__dict__.pop("_dvk_made", None)
    memory = {id(t.untyped_storage()) for t in module.__dict__.get("_dvk_weights", ()) if dvk_kept}
    for kept in dvk_kept:
        for places in list(kept):
            if any(place[0] in memory for place in places):
                kept.pop(places, None)


def dvk_derived(
    made: dict, name: int, sources: tuple[torch.Tensor, ...], make: Callable[..., Any]
) -> Any:
    """A value derived from weights, mostly a tensor, computed once until a weight changes."""
    if name not in made:
        made[name] = make(*sources)
    return made[name]


def dvk_replay(run: Any, inputs: tuple) -> Any:
    """Run a fused program, a method of the module, as one CUDA graph: fresh inputs are copied in, results are copied out."""

    def copies(tree: Any) -> Any:
        return torch.utils._pytree.tree_map(
            lambda t: t.clone() if isinstance(t, torch.Tensor) else t, tree
        )

    if "dvk_record" in sys.modules:  # the caller is recording launches into its own graph
        return copies(run(*copies(inputs)))
    weights, made = dvk_renew(run.__self__)
    held = made.get(run.__name__)
    if held is None:
        # The next call, outside of inference mode, may not write to a tensor of it.
        with torch.inference_mode(False):
            static = [t.detach().clone() if isinstance(t, torch.Tensor) else t for t in inputs]
            before = [
                (weights[n], weights[n].clone()) for n in getattr(run.__self__, "_dvk_writes", ())
            ]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run(*static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = run(*static)
        with torch.no_grad():
            for weight, value in before:  # warming up has written it
                weight.copy_(value)
        # The graph reads them by their addresses, and another module with these weights may drop them.
        memory = {id(t.untyped_storage()) for t in weights if dvk_kept}
        read = [
            found
            for kept in dvk_kept
            for places, found in list(kept.items())
            if any(place[0] in memory for place in places)
        ]
        held = made[run.__name__] = (
            graph,
            [t for t in static if isinstance(t, torch.Tensor)],
            result,
            read,
        )
    graph, tensors, result, _ = held
    torch._foreach_copy_(tensors, [t for t in inputs if isinstance(t, torch.Tensor)])
    graph.replay()
    return result.clone() if isinstance(result, torch.Tensor) else copies(result)
