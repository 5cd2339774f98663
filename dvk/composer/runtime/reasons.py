"""Why a call of a drop-in runs the original: counted at each such call, reported once for each kind of reason, explained on request.

Nothing here runs when the kernels do. It travels inside drop-ins like the functions of `guards`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch

from dvk.composer.runtime.facts import dvk_tensors
from dvk.composer.runtime.guards import (
    dvk_address,
    dvk_elsewhere,
    dvk_given,
    dvk_miscast,
    dvk_wants,
)
from dvk.composer.runtime.strided import dvk_strides_match

dvk_said: set[str] = set()
"""Kinds of reasons that were reported; in a drop-in, a separate set."""
Reason = tuple[str, str]
"""A kind of reason, and the reason as a sentence."""


def dvk_shown(shape: tuple, dtype: torch.dtype) -> str:
    """A tensor as options of dvk write it: float32[16,768]."""
    return f"{str(dtype)[6:]}[{','.join(map(str, shape))}]"


def dvk_transforms() -> Iterator[Reason]:
    """Transformations of PyTorch under which no kernels run."""
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        yield "tracing", "the call is traced"
    if torch._C._len_torch_dispatch_stack():
        yield "modes", "a mode of PyTorch looks at each operator"
    if torch.autograd.forward_ad._current_level >= 0:
        yield "forward-mode gradients", "the call is under forward-mode differentiation"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        yield "torch.func", "the call is under a transformation of torch.func (vmap, grad, …)"


def dvk_sizes_match(shape: tuple, expected: tuple) -> bool:
    """A shape is the expected one, whose sizes are numbers, ranges of a name (`rows:1..64`), or other text for any size."""
    if len(shape) != len(expected):
        return False
    for size, wanted in zip(shape, expected):
        if isinstance(wanted, str):
            low, _, high = wanted.partition(":")[2].partition("..")
            if low and not int(low) <= size <= int(high):
                return False
        elif size != wanted:
            return False
    return True


def dvk_dense(shape: tuple) -> tuple:
    """Strides of a row-major tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def dvk_unlike(name: str, value: Any, specs: list, device: str) -> Iterator[Reason]:
    """How an argument differs from the one that the first of `specs` was made for; the others are named, too."""
    shape, strides, dtype = specs[0]
    if type(value) not in dvk_tensors:
        kind = type(value).__name__
        yield f"type of {name}", f"{name} is a {kind}; kernels exist for plain tensors"
    elif value.layout is not torch.strided or value.is_neg() or value.is_conj():
        yield (
            f"form of {name}",
            f"{name} is sparse, negated or conjugated; kernels exist for dense tensors",
        )
    elif value.device.type != device:
        yield f"device of {name}", f"{name} is on {value.device}; kernels exist for {device}"
    elif value.dtype is not dtype or not dvk_sizes_match(value.shape, shape):
        every = dict.fromkeys(dvk_shown(one[0], one[2]) for one in specs)
        what = "shape" if value.dtype is dtype else "dtype"
        given = dvk_shown(value.shape, value.dtype)
        yield (
            f"{what} of {name}",
            f"{name} is {given}; kernels exist for {' and '.join(every)}. Make one: dvk optimize … --also '{name}={given}'",
        )
    elif strides is not None and not dvk_strides_match(
        value.shape, value.stride(), strides or dvk_dense(value.shape)
    ):
        dense = dvk_dense(value.shape)
        told = f"; {name}.contiguous() has these" if dense == (strides or dense) else ""
        yield (
            f"strides of {name}",
            f"{name} has strides {value.stride()}; kernels exist for {strides or dense}{told}",
        )


def dvk_misfits(module: Any, number: int, args: tuple, kwargs: dict) -> list[Reason]:
    """How a call differs from that of a program."""
    names, expected, inside = module._dvk_inputs[number]
    given = dvk_given(names, args, kwargs) if kwargs else args
    if given is None or len(given) != len(names):
        told = ", ".join(names) or "no arguments"
        more = ", ".join(f"`{name}`" for name in kwargs if name not in names)
        other = f"other arguments: {more}" if more else "other arguments"
        return [("arguments", f"the call has {other}; kernels exist for ({told})")]
    values = dict(zip(names, given))
    if inside:
        try:
            tensors = (path for path, spec in expected.items() if isinstance(spec, tuple))
            values.update(zip(tensors, getattr(module, inside)(*given)))
        except Exception:  # noqa: BLE001 - the arguments may be anything
            return [
                ("arguments", "an argument has another structure than the kernels were made for")
            ]
    found: list[Reason] = []
    for name, spec in expected.items():
        value = values[name]
        if isinstance(spec, tuple):
            others = [e[name] for _, e, _ in module._dvk_inputs if isinstance(e.get(name), tuple)]
            found += dvk_unlike(name, value, [spec, *others], module._dvk_device)
        elif type(value) is not type(spec) or value != spec:
            plain = type(value) in dvk_tensors
            now = dvk_shown(value.shape, value.dtype) if plain else f"{value!r:.80}"
            found.append((f"value of {name}", f"{name} is {now}; kernels exist for {spec!r}"))
    if module._dvk_device == "cuda" and not found:
        indices = {value.get_device() for value in values.values() if type(value) in dvk_tensors}
        if len({*indices, torch.cuda.current_device()}) > 1:
            found.append(("current device", "the arguments are not all on the current GPU"))
    return found


def dvk_wanted(module: Any, tensors: list) -> str:
    """Of what gradients are wanted."""
    named = [f"`{name}`" for name, p in module.named_parameters() if p.requires_grad]
    named += ["an argument"] * any(t.requires_grad for t in tensors)
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    of = f"{named[0] if named else 'a tensor of the module'}{more}"
    return (
        f"gradients are wanted, of {of}; these kernels compute none: call it under torch.no_grad()"
    )


def dvk_tensors_of(args: tuple, kwargs: dict) -> list:
    """Every tensor among the arguments."""
    leaves = [*args, *kwargs.values()]
    if any(isinstance(value, (list, tuple, dict)) for value in leaves):
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    return [value for value in leaves if isinstance(value, torch.Tensor)]


def dvk_reasons(module: Any, args: tuple, kwargs: dict) -> Iterator[Reason]:
    """Every reason why a call runs the original; none if it runs the kernels."""
    if transforms := list(dvk_transforms()):
        yield from transforms
        return
    tensors = dvk_tensors_of(args, kwargs)
    held = module.__dict__.get("_dvk_weights", ())
    if torch.is_grad_enabled() and not module._dvk_trains and dvk_wants(module, tuple(tensors)):
        yield "gradients", dvk_wanted(module, tensors)
    elif (
        torch.is_grad_enabled() and held and any(held[n].requires_grad for n in module._dvk_frozen)
    ):
        yield (
            "gradients",
            "gradients are wanted of weights that were frozen when the training step was made",
        )
    misfits = [dvk_misfits(module, n, args, kwargs) for n in range(len(module._dvk_inputs))]
    yield from min(misfits, key=len)
    for name in module._dvk_asked:
        if getattr(torch, name)():
            yield name, f"forward() depends on torch.{name}(), which was False for the kernels"
    if miscast := dvk_miscast(module._dvk_device, module._dvk_under, module._dvk_autocast):
        yield "autocast", miscast
    if "_dvk_ready" not in module.__dict__ or module._dvk_is_stale():
        module._dvk_again()
    yield from module._dvk_off
    if any(module._dvk_watched.hooks):
        parts = [(f"`{path}`", p) for path, p in module.named_modules() if path]
        kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        last = None if module._dvk_trains else 2
        hooked = [path for path, p in parts if any(getattr(p, kind) for kind in kinds[:last])]
        yield "hooks", f"hooks are set, on {', '.join(hooked[:4]) or 'all modules'}"
    held = module.__dict__.get("_dvk_weights", ())
    written = [held[n] for n in module._dvk_writes] if held else []
    if written and not dvk_elsewhere(tuple(tensors), {dvk_address(t) for t in written}):
        yield "shared memory", "an argument shares memory with a buffer that the call writes"


def dvk_report(module: Any, kind: str, text: str) -> None:
    """Count a call by its kind of reason; the first of each kind gives a warning, at the line that called the module."""
    counts = module.__dict__.setdefault("_dvk_counts", {"kernels": 0})
    counts[kind] = counts.get(kind, 0) + 1
    if kind not in dvk_said:
        dvk_said.add(kind)
        where = f"{type(module).__module__}.{type(module).__name__}"
        warnings.warn(f"{where} runs the original: {text}", stacklevel=6)


def dvk_missed(module: Any, args: tuple, kwargs: dict) -> None:
    """Count and report a call that runs the original."""
    if torch.compiler.is_compiling():
        return
    wanted = "gradients" in dvk_said and torch.is_grad_enabled() and not module._dvk_trains
    if wanted and dvk_wants(module, tuple(dvk_tensors_of(args, kwargs))):
        dvk_report(module, "gradients", "")  # training loops come here at each step
        return
    other = (
        "memory or values",
        "arguments share memory, or a value has none of the kernels' forms",
    )
    dvk_report(module, *next(dvk_reasons(module, args, kwargs), other))


def dvk_why(module: Any, args: tuple, kwargs: dict) -> str:
    """What a call would run, and why, one reason a line."""
    found = dict.fromkeys(text for _, text in dvk_reasons(module, args, kwargs))
    return "\n".join(found) or "the kernels run"
