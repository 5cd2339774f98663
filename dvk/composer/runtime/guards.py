"""Functions that travel inside every drop-in: their source text is copied into `best.py`.

They may use only torch and the standard library, and each must stand alone: a drop-in does not import dvk. Tests call them as ordinary
functions.
"""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

dvk_tensors = (torch.Tensor,)
"""Types of plain tensors; in a drop-in, those of a recorder's stand-ins too (see `source_file.write`)."""
dvk_kept: list[dict] = []
"""State of functions of `frame`, one dictionary per function; in a drop-in, a separate list."""
dvk_steps: list[int] = [0]
"""Number of times an optimizer has changed bound weights; in a drop-in, a separate list, as `dvk_memory`."""
dvk_memory: set[int] = set()
"""Addresses of bound memory."""


def dvk_type_name(tensor: torch.Tensor) -> str:
    """The name of a tensor's type; stand-ins of a recorder count as plain."""
    plain = "Parameter" if isinstance(tensor, torch.nn.Parameter) else "Tensor"
    kind = type(tensor)  # an export substitutes tensors without values
    known = kind in dvk_tensors or kind.__module__.startswith("torch._subclasses.f")
    return plain if known else kind.__name__


def dvk_described(value: object, depth: int) -> str:
    """An attribute as text: plain values, small tensors, containers, and what functions hold."""
    if value is None or isinstance(
        value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
    ):
        return repr(value)
    if isinstance(value, torch.nn.Parameter) or depth > 8:
        return (
            dvk_type_name(value) if isinstance(value, torch.nn.Parameter) else type(value).__name__
        )
    if isinstance(value, torch.Tensor):
        # A tensor other than a buffer may have become part of the graph if it is small.
        few = (
            value.tolist()
            if value.numel() <= 256 and value.device.type != "meta" and not value.is_quantized
            else ""
        )
        return f"{tuple(value.shape)} {value.dtype} {few}"
    if isinstance(value, torch.nn.Module):
        return type(value).__qualname__
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                f"{dvk_described(k, depth + 1)}: {dvk_described(v, depth + 1)}"
                for k, v in value.items()
            )
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return (
            type(value).__name__ + "(" + ", ".join(dvk_described(v, depth + 1) for v in value) + ")"
        )
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(dvk_described(v, depth + 1) for v in value)) + "}"
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    code = getattr(value, "__code__", None)
    held = [
        getattr(value, "__self__", None),
        {} if isinstance(value, type) else dict(getattr(value, "__dict__", {})),
    ]
    if code is not None:
        cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        consts = [c for c in code.co_consts if isinstance(c, (bool, int, float, str))]
        held += [
            code.co_names,
            consts,
            cells,
            getattr(value, "__defaults__", None),
            getattr(value, "__kwdefaults__", None),
        ]
    return name + dvk_described(held, depth + 1)


def dvk_config(
    module: torch.nn.Module, left: tuple[str, ...] = (), free: tuple[str, ...] = ()
) -> str:
    """Hash of the facts a graph was captured under except tensor values and modes.

    It covers attributes except the `free` ones and shapes of weights; in modules `left` to PyTorch only their types.
    """
    internal = vars(torch.nn.Module())

    parts = []
    for path, child in module.named_modules():
        kind = (
            type(child).__name__.removeprefix("dvk_") if path else ""
        )  # a drop-in calls the user's ModelNew dvk_ModelNew
        parts.append(f"{path}:{kind}")
        whole = not any(f"{path}.".startswith(f"{one}.") for one in left)
        parts.extend(
            f"{key}={dvk_described(value, 0)}"
            for key, value in sorted(vars(child).items())
            if whole
            and key not in internal
            and not key.startswith(("_dvk_", "_is_torch_compile"))
            and f"{path}.{key}" not in free
        )
        for held in (child._parameters, child._buffers) if whole else ():
            parts.extend(
                f"{key}:{tuple(t.shape)}:{t.dtype}:{t.device.type}:{dvk_type_name(t)}"
                for key, t in held.items()
                if t is not None and f"{path}.{key}" not in free
            )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


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


def dvk_watch(
    module: torch.nn.Module, left: tuple[str, ...] = (), read: tuple[str, ...] = ()
) -> tuple:
    """State that may change between two calls: modes that forward reads, hooks (except in `left`), and the set of submodules."""
    parts, named = list(module.modules()), dict(module.named_modules(remove_duplicate=False))
    free = {id(part) for path in left for part in module.get_submodule(path).modules()}
    hooks = [
        torch.nn.modules.module._global_forward_hooks,
        torch.nn.modules.module._global_forward_pre_hooks,
    ]
    hooks += [
        held
        for p in parts[1:]
        if id(p) not in free
        for held in (p._forward_hooks, p._forward_pre_hooks)
    ]
    inside = [(part._modules, tuple(part._modules.values())) for part in parts if part._modules]
    asked = [named[path] for path in read if path in named]
    return asked, [part.training for part in asked], hooks, inside


def dvk_unchanged(watched: tuple) -> bool:
    """No submodule has hooks, none was replaced, and those with a relevant mode still have it."""
    asked, modes, hooks, inside = watched
    if any(hooks) or asked and [p.training for p in asked] != modes:
        return False
    for held, were in inside:
        if tuple(held.values()) != were:
            return False
    return True


def dvk_plain() -> bool:
    """The call is plain: not traced, vectorised (vmap) or under forward-mode differentiation, and no mode sees its operators.

    The caller has asked before whether it is being compiled.
    """
    native = torch._C
    return (
        not native._is_tracing()
        and not native._len_torch_dispatch_stack()  # a mode that records operators, or replaces tensors
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


class dvk_guarded(torch.nn.Module):
    """The base of a ModelNew around its program and the original: it prepares itself at the first call, and again after changes."""

    _dvk_config: str | None = (
        None  # dvk_config of the modules that the programs were made for, without the parts left to PyTorch, apart by spaces
    )
    _dvk_apart: tuple[str, ...] = ()
    _dvk_free: tuple[str, ...] = ()  # attributes that calls left to PyTorch change
    _dvk_modes: dict[str, bool] = {}  # train or eval of the modules that the programs depend on
    _dvk_calls: dict[
        str, tuple[str, str]
    ] = {}  # parts that they call: path of a submodule, and the name of a method of it or empty
    _dvk_paths: tuple[
        str, ...
    ] = ()  # weights that they read, as kernels expect them: position, shape, strides, dtype
    _dvk_layouts: tuple = ()
    _dvk_writes: tuple[int, ...] = ()  # positions of the weights that the programs write

    @staticmethod
    def _dvk_load() -> bool:
        return True

    def _dvk_prepare(self) -> bool:
        self._dvk_watched = dvk_watch(self, self._dvk_apart, tuple(self._dvk_modes))
        owners = {key: self.get_submodule(path) for key, (path, _) in self._dvk_calls.items()}
        self._dvk_left = {
            key: getattr(owners[key], name) if name else owners[key]
            for key, (_, name) in self._dvk_calls.items()
        }
        if self._dvk_watched[1] != list(self._dvk_modes.values()):
            return False
        known = (self._dvk_config or "").split()
        if known and dvk_config(self, self._dvk_apart, self._dvk_free) not in known:
            return False
        if self._dvk_paths:
            self._dvk_weights, self._dvk_places = dvk_bind(self, self._dvk_paths)
            changed = [t for n in self._dvk_writes if (t := self._dvk_weights[n]).numel()]
            self._dvk_written = {dvk_address(t) for t in changed}
            if changed and not dvk_apart(self._dvk_weights, tuple(changed)):
                return False
            self._dvk_counters = [
                c for c in dvk_counters(self) if dvk_address(c) not in self._dvk_written
            ]
            self._dvk_were = dvk_written(self._dvk_counters)
            for position, shape, strides, dtype in self._dvk_layouts:
                weight = self._dvk_weights[position]
                if weight.shape != shape or weight.stride() != strides or weight.dtype is not dtype:
                    return False
        return self._dvk_load()

    def _dvk_again(self) -> bool:
        dvk_drop(self)
        self._dvk_ready = self._dvk_prepare()
        return self._dvk_ready

    def _dvk_forget(self) -> None:
        # After a change, the next call examines the module again, and holds no memory on a device that the weights may be about to leave.
        self.__dict__.pop("_dvk_ready", None)
        dvk_drop(self)

    def train(self, mode: bool = True) -> Any:
        self._dvk_forget()
        return super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self._dvk_forget()
        return super()._apply(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self._dvk_forget()
        return super().load_state_dict(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles prepare themselves again: kernels are loaded once per process.
        return {key: value for key, value in self.__dict__.items() if not key.startswith("_dvk_")}


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
