"""Programs of a drop-in as operators of PyTorch: what torch.compile and torch.export record instead of Python.

The functions travel inside drop-ins like those of `guards`. A direct call does not use them.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from dvk.composer.runtime.facts import dvk_changes, dvk_facts_key, dvk_tensors
from dvk.composer.runtime.guards import dvk_memory, dvk_state, dvk_steps, dvk_watch
from dvk.composer.runtime.strided import dvk_strided

dvk_reported: set[str] = set()
"""Reasons that were reported already; in a drop-in, a separate set."""


class dvk_operator:
    """A program as an operator, for as long as the process lives.

    The backward of a training step is another one, which `dvk_differentiable` registers as the derivative of the forward.

    Args:
        name: namespace::name; the namespace is unique to the text of the drop-in.
        schema: operands and results, as PyTorch writes them.
        layouts: shape, strides and dtype of each operand; the same of each result, and whether its memory is certainly new. For a
            range of sizes a function of the operands.
        load: makes the kernels callable; False if it cannot.
        run: from the operands to the result or the tuple of results.
        seeded: it draws random numbers.
    """

    def __init__(
        self,
        name: str,
        schema: str,
        layouts: Any,
        device: str,
        load: Callable[[], bool],
        run: Callable[..., Any],
        seeded: bool = False,
    ):
        self.name, self.schema, self.layouts, self.device = name, schema, layouts, device
        self.load, self.run, self.loaded, self.calls = load, run, False, 0
        self.same: tuple | None = None
        if not callable(layouts):
            self.same = tuple([one[place] for one in layouts[0]] for place in range(3))
        known = torch.ops.__dict__.setdefault("_dvk_operators", {})
        if name not in known:  # else another copy of this drop-in has registered it
            known[name] = self
            self.register(seeded)

    def register(self, seeded: bool) -> None:
        space, _, short = self.name.partition("::")
        tag = torch.Tag
        tags = [tag.pt2_compliant_tag, tag.needs_exact_strides]
        tags += [tag.nondeterministic_seeded] if seeded else []
        self.library = torch.library.Library(space, "FRAGMENT")
        self.library.define(f"{short}{self.schema}", tags=tags)
        self.library.impl(short, self.call, self.device.upper())
        torch.library.register_fake(self.name, self.empty, lib=self.library)

    def empty(self, *tensors: torch.Tensor) -> Any:
        """Results without values."""
        _, given = self.layouts(*tensors) if callable(self.layouts) else self.layouts
        made = [
            torch.empty_strided(shape, strides, dtype=dtype, device=tensors[0].device)
            for shape, strides, dtype, _ in given
        ]
        return made[0] if len(made) == 1 else tuple(made)

    def call(self, *tensors: torch.Tensor) -> Any:
        """The results.

        Raises:
            RuntimeError: the kernels cannot be loaded here, or an operand has another shape or dtype than they were written for.
        """
        if not self.loaded:
            if not self.load():
                raise RuntimeError(
                    f"{self.name}: its kernels cannot be loaded on this machine; compile or export the original module here"
                )
            self.loaded = True
        self.calls += 1
        taken, given = self.layouts(*tensors) if callable(self.layouts) else self.layouts
        shapes, strides, dtypes = self.same or map(list, zip(*taken))
        if (
            list(map(torch.Tensor.stride, tensors)) != strides
            or [t.shape for t in tensors] != shapes
            or [t.dtype for t in tensors] != dtypes
        ):
            tensors = tuple(dvk_strided(t, s, n, d) for t, (n, s, d) in zip(tensors, taken))
        if self.device == "cuda":
            with torch.cuda.device(tensors[0].device):
                made = self.run(*tensors)
        else:
            made = self.run(*tensors)
        if len(given) == 1:
            return self.owned(made, given[0], tensors)
        return tuple(self.owned(t, how, tensors) for t, how in zip(made, given))

    def owned(self, tensor: torch.Tensor, how: tuple, tensors: tuple) -> torch.Tensor:
        """A result in the layout that was announced, in memory that no operand shares."""
        shape, strides, dtype, fresh = how
        if fresh:
            return tensor
        made = dvk_strided(tensor, strides, shape, dtype)
        memory = made.untyped_storage().data_ptr()
        if any(t.untyped_storage().data_ptr() == memory for t in tensors):
            made = torch.empty_strided(shape, strides, dtype=dtype, device=made.device).copy_(made)
        return made


def dvk_distinct(tensors: tuple) -> tuple:
    """The tensors, none of which share memory."""
    known: set[int] = set()
    made = []
    for tensor in tensors:
        memory = tensor.untyped_storage().data_ptr()
        made.append(tensor.clone() if memory in known else tensor)
        known.add(memory)
    return tuple(made) if len(made) > 1 else made[0]


def dvk_differentiable(
    forward: dvk_operator,
    backward: dvk_operator,
    saved: Callable[..., tuple],
    results: tuple[int, ...],
    pulled: tuple[bool, ...],
    sources: tuple[int | None, ...],
) -> None:
    """Register the backward program of a training step as the derivative of its forward program.

    Args:
        saved: from the operands and results of the forward to what the backward reads.
        results: places of the module's results among those of the forward.
        pulled: for each result, whether it has a gradient.
        sources: for each operand, the place of its gradient among those of the backward.
    """
    if not hasattr(forward, "library"):
        return  # another copy of this drop-in has registered both
    space, _, name = backward.name.partition("::")

    def setup(ctx: Any, inputs: tuple, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.save_for_backward(*saved(*inputs, *outputs))
        apart = [outputs[place] for place, one in zip(results, pulled) if not one]
        if apart:
            ctx.mark_non_differentiable(*apart)

    def back(ctx: Any, *tangents: Any) -> tuple:
        along = [tangents[place] for place, one in zip(results, pulled) if one]
        run = getattr(getattr(torch.ops, space), name).default
        made = run(*ctx.saved_tensors, *along)
        grads = made if isinstance(made, tuple) else (made,)
        return tuple(None if at is None else grads[at] for at in sources)

    torch.library.register_autograd(forward.name, back, setup_context=setup, lib=forward.library)


def dvk_with_weights(kind: Any, weights: tuple, kept: dict | None) -> Any:
    """An object that runs the programs of `kind` on these weights.

    Args:
        kept: tensors derived from weights, by the weights' addresses; None if the program derives none. They go with the weights.
    """
    held = object.__new__(kind)
    held._dvk_weights = weights
    if kept is None:
        return held
    read = [t for t in weights if not t.is_inference()]
    state = dvk_state(weights, read)
    key = tuple(state[0])
    known = kept.get(key)
    if known is None or known[:2] != (state, dvk_steps[0]) or any(r.expired() for r in known[3]):
        for place in [p for p, one in list(kept.items()) if any(r.expired() for r in one[3])]:
            kept.pop(place, None)
        refs = [
            torch.multiprocessing.reductions.StorageWeakRef(t.untyped_storage()) for t in weights
        ]
        known = kept[key] = (state, dvk_steps[0], {}, refs)
        dvk_memory.update(t.untyped_storage().data_ptr() for t in weights)
        for tensor in weights:
            weakref.finalize(tensor, dvk_let_go, kept, key).atexit = False
    held._dvk_made = (state, known[2], (), weights, read)
    return held


def dvk_let_go(kept: dict, key: tuple) -> None:
    """Drop what was derived from weights if only the tensor that ends now holds the memory of one."""
    for ref in kept[key][3] if key in kept else ():
        storage = torch.UntypedStorage._new_with_weak_ptr(ref.cdata)
        if storage is None or torch._C._storage_Use_Count(storage._cdata) <= 2:
            kept.pop(key, None)


# ---------------------------------------------------------------- when a call is traced


def dvk_constant(function: Any) -> Any:
    """Let torch.compile call it while it traces and keep the answer, as torch.compiler.assume_constant_result without its imports."""
    function._dynamo_marked_constant = True
    return function


def dvk_untraceable(module: Any, asked: tuple[str, ...]) -> str:
    """Why a traced call of this module runs the original; empty if the module is what its programs were made for."""
    if torch._C._is_tracing():
        return "torch.jit.trace does not record operators of Python"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        kind = str(torch._C._functorch.peek_interpreter_stack().key())
        if "Functionalize" not in kind:
            return "it is vectorised or differentiated"
    if torch.autograd.forward_ad._current_level >= 0:
        return "it is under forward-mode differentiation"
    for name in asked:
        if getattr(torch, name)():
            return f"torch.{name}() is True"
    # Modes that record would see the questions below.
    with torch.utils._python_dispatch._disable_current_modes():
        if any(dvk_watch(module, module._dvk_read, module._dvk_apart).hooks):
            return "forward hooks are set"
        parts = (
            [part for path, part in module.named_modules() if path] if module._dvk_trains else []
        )
        if any(part._backward_hooks or part._backward_pre_hooks for part in parts):
            return "backward hooks are set on a part of it"
        known = module._dvk_known.split()
        changes = dvk_changes(module, module._dvk_read)
        if changes and dvk_facts_key(module, module._dvk_read) not in known:
            return changes[0][1]
        return "" if module._dvk_load() else "the kernels could not be built or loaded here"


@dvk_constant
def dvk_strict() -> bool:
    """Sizes that vary must not be compared: they are those of an export, or were marked as dynamic."""
    if torch.compiler.is_exporting():
        return True
    context = torch._guards.TracingContext.try_get()
    env = getattr(getattr(context, "fake_mode", None), "shape_env", None)
    return any(
        one is not None and not getattr(one, "warn_only", False)
        for fake in getattr(env, "tracked_fakes", None) or ()
        for one in getattr(fake.symbolic_context, "constraint_sizes", None) or ()
    )


@dvk_constant
def dvk_left_out(entry: str, why: str) -> None:
    """Report once for each reason that a traced call records the original's operators."""
    if why not in dvk_reported:
        dvk_reported.add(why)
        text = f"{entry}: the original is compiled or exported instead of its kernels: {why}"
        warnings.warn(text, stacklevel=2)


def dvk_recorded(tensor: Any) -> bool:
    """A plain tensor, or what stands for one while a call is traced."""
    kind = type(tensor)
    return kind in dvk_tensors or kind.__module__.startswith("torch._subclasses.f")


def dvk_of_size(tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """It has this shape and these strides (but for dimensions of size 1); a size that varies is compared where that is allowed."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

    if tensor.dim() != len(shape):
        return False
    equal = statically_known_true if dvk_strict() else guard_or_false
    sizes, steps = zip(tensor.shape, shape), zip(tensor.stride(), strides)
    if not all(equal(size == wanted) for size, wanted in sizes):
        return False
    return all(
        equal(step == wanted)
        for size, (step, wanted) in zip(shape, steps)
        if not isinstance(size, int) or size != 1
    )


def dvk_between(size: Any, low: int, high: int) -> bool:
    """The size of a dimension is in the range; one that varies is compared where that is allowed."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

    decided = statically_known_true if dvk_strict() else guard_or_false
    return decided(size >= low) and decided(size <= high)


def dvk_gradients(tensors: tuple) -> bool:
    """Gradients are wanted: the operators have none."""
    return torch.is_grad_enabled() and any([t.requires_grad for t in tensors])
