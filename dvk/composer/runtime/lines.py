"""PyTorch's own ways to run a module: channels_last, torch.compile, replay as a CUDA graph. Their text travels inside `best.py`.

A line runs for the calls that it was measured with; every other call runs the original, and `dvk_reason` of the module says why. Results
are new tensors at each call. As in `guards.py`: torch and the standard library only.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import torch

from dvk.composer.runtime.facts import dvk_tensors
from dvk.composer.runtime.graph_replay import dvk_captured, dvk_differ
from dvk.composer.runtime.guards import (
    dvk_bind,
    dvk_bound,
    dvk_miscast,
    dvk_plain,
    dvk_steps,
    dvk_wants,
    dvk_watch,
)
from dvk.composer.runtime.prepared import dvk_prepared
from dvk.composer.runtime.reasons import dvk_report


class dvk_line(dvk_prepared):
    """The base of a ModelNew that runs the original in one of PyTorch's own ways."""

    _dvk_run = "eager"  # eager, compile or graph
    _dvk_mode: str | None = None  # the mode of torch.compile
    _dvk_layout = ""  # channels_last: convolutions' weights and inputs in that layout
    _dvk_device = "cpu"
    _dvk_under: torch.dtype | None = None  # type of the autocast that it was measured under
    _dvk_trains = False  # it was measured with its backward
    _dvk_inputs: tuple = ()  # shape, strides and dtype of each tensor of the call
    _dvk_outputs: tuple = ()  # shape and strides of each tensor of the result

    @property
    def dvk_calls(self) -> dict[str, int]:
        """How many calls ran in this way, and how many ran the original, by reason."""
        return dict(self.__dict__.get("_dvk_counts", {"line": 0}))

    def dvk_why(self, *args: Any, **kwargs: Any) -> str:
        """What a call with these arguments would run, and why."""
        why = dvk_unfit(self, args, kwargs)
        held = self.__dict__.get("_dvk_line")
        return why or held is not None and held.why or "the kernels run"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The original's result."""
        if torch.compiler.is_compiling():  # the compiler around it sees the original's operators
            return super().forward(*args, **kwargs)
        why = dvk_unfit(self, args, kwargs)
        if why is None:
            held = self.__dict__.get("_dvk_line")
            if held is None or not held.fits():
                held = self.__dict__["_dvk_line"] = dvk_started(self, args, kwargs)
            if held.why is None:
                counts = self.__dict__.setdefault("_dvk_counts", {"line": 0})
                counts["line"] += 1
                return held(args, kwargs)
            why = held.why
        self.__dict__["dvk_reason"] = why
        dvk_report(self, why, why)
        return super().forward(*args, **kwargs)

    def _dvk_forget(self) -> None:
        self.__dict__.pop("_dvk_line", None)
        self.__dict__.pop("_dvk_pattern", None)
        self.__dict__.pop("_dvk_values", None)


def dvk_leaves(args: tuple, kwargs: dict) -> Any:
    """Tensors and other values of a call, in the order of its arguments."""
    for value in args:
        if type(value) not in dvk_tensors:
            return torch.utils._pytree.tree_leaves((args, kwargs))
    return torch.utils._pytree.tree_leaves((args, kwargs)) if kwargs else args


def dvk_unfit(module: Any, args: tuple, kwargs: dict) -> str | None:
    """Why this call runs the original; None if it is like those that the line was measured with."""
    leaves = dvk_leaves(args, kwargs)
    tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
    given = [(tuple(t.shape), t.stride(), t.dtype) for t in tensors]
    if given != module.__dict__.get("_dvk_pattern"):
        if sorted(map(repr, given)) != sorted(map(repr, module._dvk_inputs)):
            return "its inputs have other shapes, strides or dtypes than those that it was measured with"
        module.__dict__["_dvk_pattern"] = given
    for tensor in tensors:
        if type(tensor) not in dvk_tensors or tensor.device.type != module._dvk_device:
            return f"an input is no plain tensor on the device {module._dvk_device}"
    if module._dvk_run == "graph":
        form = "" if leaves is args else repr(torch.utils._pytree.tree_structure((args, kwargs)))
        values = [len(args), form, *[t for t in leaves if not isinstance(t, torch.Tensor)]]
        if dvk_differ(module.__dict__.setdefault("_dvk_values", values), values):
            return "an argument has another value than the one that the graph was captured with"
    wanted = torch.is_grad_enabled() and not module._dvk_trains
    if wanted and dvk_wants(module, tuple(tensors)):
        return "gradients are wanted"
    if miscast := dvk_miscast(module._dvk_device, module._dvk_under):
        return miscast
    return None if dvk_plain() else "it is traced, vectorised or differentiated"


def dvk_modes(module: Any) -> tuple:
    """The modes of all modules, as `dvk_watch` takes them."""
    return ((tuple(path for path, _ in module.named_modules()), {"training": ""}),)


class dvk_unable:
    """A line that cannot run here, with the reason."""

    def __init__(self, why: str):
        self.why = why

    def fits(self) -> bool:
        return True


class dvk_way:
    """A module's forward in one of PyTorch's ways, for the weights, modes and hooks that it has now."""

    why = None

    def __init__(self, module: Any, args: tuple, kwargs: dict):
        last = module._dvk_layout == "channels_last"
        paths = [name for name, _ in module.named_parameters(remove_duplicate=False)]
        paths += [name for name, _ in module.named_buffers(remove_duplicate=False)]
        self.guarded = last or module._dvk_run == "graph"
        target: Any = dvk_channels_last(module, {}) if last else module
        forward = super(dvk_line, target).forward  # type: ignore[misc]
        self.call = dvk_in_layout(forward, module._dvk_outputs) if last else forward
        self.captured: Any = None
        if module._dvk_run == "graph":
            self.call = self.captured = dvk_captured(target, self.call, args, kwargs)
        elif module._dvk_run == "compile":
            self.call = dvk_compiled(self.call, module._dvk_mode, module._dvk_device == "cuda")
        if self.guarded:  # after the capture, which may put attributes back
            self.watched = dvk_watch(module, dvk_modes(module))
            self.places = dvk_bind(module, tuple(paths))[1]
        self.copied = [t for t in self.places[2] if t.dim() in (4, 5)] if last else []
        self.were = self.now()

    def now(self) -> list[int]:
        # A fused optimizer writes weights without a version bump.
        return [dvk_steps[0], *[0 if t.is_inference() else t._version for t in self.copied]]

    def fits(self) -> bool:
        if not self.guarded:
            return True
        if self.captured is not None and not self.captured.fits():
            return False
        return (
            dvk_bound(self.places)
            and not any(self.watched.hooks)
            and self.watched.same()
            and (not self.copied or self.now() == self.were)
        )

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        return self.call(*args, **kwargs)


def dvk_started(module: Any, args: tuple, kwargs: dict) -> Any:
    """The line for this module as it is now; where PyTorch cannot run it so, the reason.

    Raises:
        Exception: PyTorch's own, if $DVK_STRICT is set.
    """
    try:
        # A backward is compiled with its forward, for a call that wants gradients.
        with torch.set_grad_enabled(module._dvk_trains and torch.is_grad_enabled()):
            held = dvk_way(module, args, kwargs)
            if module._dvk_run == "compile":
                dvk_first_call(module, held, args, kwargs)
        return held
    except Exception as error:  # compilers raise anything
        if os.environ.get("DVK_STRICT"):
            raise
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
        warnings.warn(f"running the original computation: {text}")  # noqa: B028
        return dvk_unable(text)


def dvk_first_call(module: Any, held: Any, args: tuple, kwargs: dict) -> None:
    """Compile; what the call writes is put back: the next call computes."""
    written = [t for t in dvk_leaves(args, kwargs) if isinstance(t, torch.Tensor)]
    written += list(module.buffers())
    before = [t.clone() for t in written]
    host = torch.get_rng_state()
    device = torch.cuda.get_rng_state() if module._dvk_device == "cuda" else None
    held(args, kwargs)
    with torch.no_grad():
        for tensor, value in zip(written, before):
            if not torch.equal(tensor, value):
                tensor.copy_(value)
    torch.set_rng_state(host)
    if device is not None:
        torch.cuda.set_rng_state(device)


def dvk_compiled(forward: Callable[..., Any], mode: str | None, cuda: bool) -> Callable[..., Any]:
    """`forward` through torch.compile. Modes that replay CUDA graphs reuse their results' memory: those are copied."""
    run = torch.compile(forward, mode=mode)
    if not cuda or mode not in ("reduce-overhead", "max-autotune"):
        return run

    def call(*args: Any, **kwargs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        result = run(*args, **kwargs)
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, result)

    return call


def dvk_format(tensor: torch.Tensor) -> torch.Tensor:
    """Images and volumes in channels_last, other tensors as they are."""
    if tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    if tensor.dim() == 5:
        return tensor.contiguous(memory_format=torch.channels_last_3d)
    return tensor


def dvk_channels_last(module: Any, known: dict[int, Any]) -> Any:
    """The module with its convolutions' weights in channels_last. It shares buffers and all other weights."""
    if id(module) not in known:
        made = known[id(module)] = object.__new__(type(module))
        made.__dict__ = dict(module.__dict__)
        made.__dict__["_parameters"] = {
            name: torch.nn.Parameter(dvk_format(p.detach()), requires_grad=False)
            if p is not None and p.dim() in (4, 5)
            else p
            for name, p in module._parameters.items()
        }
        made.__dict__["_modules"] = {
            name: child if child is None else dvk_channels_last(child, known)
            for name, child in module._modules.items()
        }
    return known[id(module)]


def dvk_in_layout(forward: Callable[..., Any], outputs: tuple) -> Callable[..., Any]:
    """`forward` on inputs in channels_last; its results have the strides of the original's."""
    pytree = torch.utils._pytree

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(torch.Tensor, dvk_format, (args, kwargs))
        leaves, spec = pytree.tree_flatten(forward(*args, **kwargs))
        left = list(outputs)
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                strides = next((s for shape, s in left if shape == tuple(leaf.shape)), None)
                if strides is None:
                    raise RuntimeError("its result has other shapes than the original's")
                left.remove((tuple(leaf.shape), strides))
                if leaf.stride() != strides:
                    empty = torch.empty_strided(
                        leaf.shape, strides, dtype=leaf.dtype, device=leaf.device
                    )
                    leaves[number] = empty.copy_(leaf)
        return pytree.tree_unflatten(leaves, spec)

    return call
