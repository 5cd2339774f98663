"""A module's forward as one CUDA graph. The text travels inside `best.py`, as that of `guards.py` does.

What a forward writes in place (running statistics, counters, caches among its inputs) is written by each replay exactly as by a call;
warming up and capturing leave no trace. Random numbers come from PyTorch's own generator, whose offset a replay advances as a call does.
Values that come from the host (literals, scalar tensors on the CPU) are part of the graph. A forward is refused if a value decides on the
host, or if it changes attributes of the module at every call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class dvk_captured:
    """A forward captured for one call's shapes.

    Raises:
        RuntimeError: it cannot be replayed; the message says why. So do PyTorch's own errors.
    """

    def __init__(self, module: Any, forward: Any, args: tuple, kwargs: dict):
        pytree = torch.utils._pytree
        leaves, spec = pytree.tree_flatten((args, kwargs))
        dvk_only_plain(leaves, "an argument")
        with torch.inference_mode(False):
            static = [
                torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)
                if isinstance(t, torch.Tensor)
                else t
                for t in leaves
            ]
        self.inputs = [t for t in static if isinstance(t, torch.Tensor)]
        before, states = [t._version for t in self.inputs], dvk_states(module)
        kept = [(b, b.clone()) for b in module.buffers()]
        generator = torch.cuda.get_rng_state()
        host = dvk_host_values()
        call = pytree.tree_unflatten(static, spec)
        try:
            self.warm_up(module, forward, call, host, leaves, kept)
            self.graph = torch.cuda.CUDAGraph()
            host.begin(capturing=True)
            with torch.no_grad(), torch.cuda.graph(self.graph), host:
                result = forward(*call[0], **call[1])
        except BaseException:  # whatever ends it, the state is put back
            dvk_put_states(states)
            raise
        finally:
            dvk_put(kept)
            torch.cuda.set_rng_state(generator)
        self.written = [n for n, t in enumerate(self.inputs) if t._version != before[n]]
        self.keep_result(module, result)
        self.on_host = [(t, t._version) for t in dvk_on_host(module)]

    def warm_up(
        self, module: Any, forward: Any, call: Any, host: Any, leaves: list, kept: list
    ) -> None:
        """Call it three times on another stream: libraries choose algorithms, lazy attributes appear."""
        given = [t for t in leaves if isinstance(t, torch.Tensor)]
        side, drawn, states = torch.cuda.Stream(), torch.get_rng_state(), None
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for number in range(3):
                host.begin(capturing=False)
                for static, value in zip(self.inputs, given):
                    static.copy_(value)
                with host:
                    forward(*call[0], **call[1])
                dvk_put(kept)
                if number and dvk_differ(states, dvk_states(module)):
                    raise RuntimeError("its forward changes attributes of the module at every call")
                states = dvk_states(module)
        torch.cuda.current_stream().wait_stream(side)
        if not torch.equal(drawn, torch.get_rng_state()):
            torch.set_rng_state(drawn)
            raise RuntimeError("its forward draws random numbers on the host")

    def keep_result(self, module: Any, result: Any) -> None:
        leaves, self.spec = torch.utils._pytree.tree_flatten(result)
        dvk_only_plain(leaves, "its result")
        memory = [t.untyped_storage().data_ptr() for t in self.inputs]
        held = [t.untyped_storage().data_ptr() for t in [*module.parameters(), *module.buffers()]]
        tensors = [t for t in leaves if isinstance(t, torch.Tensor) and t.numel()]
        if any(t.untyped_storage().data_ptr() in memory for t in tensors):
            raise RuntimeError("its result is a view of an argument")
        self.results = leaves
        self.own = [
            isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() in held for t in leaves
        ]
        self.single = isinstance(result, torch.Tensor) and not self.own[0]

    def fits(self) -> bool:
        for tensor, version in self.on_host:
            if tensor._version != version:
                return False
        return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        given = [t for t in leaves if isinstance(t, torch.Tensor)]
        if given:
            torch._foreach_copy_(self.inputs, given)
        self.graph.replay()
        for number in self.written:
            given[number].copy_(self.inputs[number])
        if self.single:
            return dvk_fresh(self.results[0])
        fresh = [
            dvk_fresh(t) if isinstance(t, torch.Tensor) and not own else t
            for t, own in zip(self.results, self.own)
        ]
        return torch.utils._pytree.tree_unflatten(fresh, self.spec)


class dvk_host_values(TorchFunctionMode):
    """Tensors that a call makes on the device from values of the host: made when it warms up, part of the graph when it is captured.

    Raises:
        RuntimeError: they differ between two calls.
    """

    names = (
        "tensor",
        "as_tensor",
        "asarray",
        "scalar_tensor",
        "new_tensor",
        "to",
        "cuda",
        "type_as",
    )

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []
        self.before: list[Any] = []
        self.capturing = False

    def begin(self, capturing: bool) -> None:
        """Begin another call."""
        if self.before and not dvk_same_values(self.before, self.made):
            raise RuntimeError("its forward reads values of the host that differ between calls")
        self.before, self.capturing = self.made, capturing
        self.made = list(self.made) if capturing else []
        if capturing:
            self.before = []

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(function, "__name__", "")
        first: Any = args[0] if args else None
        if name == "copy_" and first.is_cuda and len(args) > 1 and args[1].device.type == "cpu":
            return function(
                first, self.taken(lambda: args[1].to(first.device)), *args[2:], **kwargs
            )
        on_device = isinstance(first, torch.Tensor) and first.device.type != "cpu"
        if name == "where" and on_device:  # it copies scalar tensors of the host to the device
            return function(first, *[self.moved(value, first) for value in args[1:]], **kwargs)
        if name not in self.names or on_device and name != "new_tensor":
            return function(*args, **kwargs)
        return self.taken(lambda: function(*args, **kwargs))

    def moved(self, value: Any, like: Any) -> Any:
        on_host = isinstance(value, torch.Tensor) and value.device.type == "cpu"
        return self.taken(lambda: value.to(like.device)) if on_host else value

    def taken(self, make: Any) -> Any:
        if self.capturing:
            made = self.made.pop(0)
            return make() if made is None else made.clone()
        value = make()
        kept = isinstance(value, torch.Tensor) and value.device.type != "cpu"
        self.made.append(value.clone() if kept else None)
        return value


def dvk_same_values(one: list, other: list) -> bool:
    """Both lists hold None and tensors of the same values at the same places."""
    return len(one) == len(other) and all(
        (a is None) == (b is None)
        and (a is None or a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b)))
        for a, b in zip(one, other)
    )


def dvk_only_plain(leaves: list, what: str) -> None:
    """Refuse what a graph cannot copy.

    Raises:
        RuntimeError: a leaf is neither a tensor on the device nor a plain value.
    """
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            if leaf.device.type == "cpu":
                raise RuntimeError(f"{what} is on the CPU")
        elif not isinstance(leaf, (type(None), bool, int, float, complex, str, torch.dtype)):
            raise RuntimeError(f"{what} holds an object of {type(leaf).__name__}")


def dvk_fresh(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    made = tensor.clone()
    if made.stride() == tensor.stride():
        return made
    storage = tensor.untyped_storage()
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    whole.set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))
    return whole.clone().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def dvk_put(kept: list) -> None:
    """Put back the values of buffers."""
    with torch.no_grad():
        for buffer, value in kept:
            buffer.copy_(value)


def dvk_states(module: Any) -> list:
    """The attributes of a module and its submodules; containers as copies."""
    return [
        (part, {k: v.copy() if type(v) in (dict, list, set) else v for k, v in vars(part).items()})
        for part in module.modules()
    ]


def dvk_put_states(states: list) -> None:
    """Put back attributes."""
    for part, held in states:
        vars(part).clear()
        vars(part).update(held)


def dvk_differ(before: Any, now: Any) -> bool:
    """Whether attributes differ: plain values by value, tensors and other objects by identity."""
    if before is now:
        return False
    if type(before) is not type(now):
        return True
    if isinstance(before, dict):
        return list(before) != list(now) or any(dvk_differ(before[k], now[k]) for k in before)
    if isinstance(before, (list, tuple)):
        return len(before) != len(now) or any(map(dvk_differ, before, now))
    if isinstance(before, (bool, int, float, complex, str, set, frozenset)):
        return bool(before != now)
    return True


def dvk_on_host(module: Any) -> list:
    """Tensors on the CPU that a module holds: their values are part of a graph."""
    held = [
        value
        for part in module.modules()
        for among in (vars(part), part._buffers, part._parameters)
        for value in among.values()
    ]
    return [t for t in held if isinstance(t, torch.Tensor) and t.device.type == "cpu"]
