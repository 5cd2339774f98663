"""Training steps of drop-ins: the forward program saves what the backward program reads. The text travels inside drop-ins, as that of
`guards.py` does."""

from __future__ import annotations

from typing import Any

import torch


class dvk_step(torch.autograd.Function):
    """A forward program and its backward program as one differentiable call."""

    @staticmethod
    def forward(
        ctx: Any, module: Any, names: tuple[str, ...], pulled: tuple, given: tuple, *sources: Any
    ) -> tuple:
        run, _, _ = names
        results, saved = getattr(module, run)(*given)
        results = dvk_writable(results, saved, given)
        ctx.save_for_backward(*saved)
        # For a backward of the backward alone, which starts from the original.
        ctx.dvk_call = module, names, pulled, given, sources, [t._version for t in sources]
        wanted = ctx.needs_input_grad[4:]
        apart = [one is not True and not any(wanted[n] for n in one) for one in pulled]
        ctx.mark_non_differentiable(*(t for t, one in zip(results, apart) if one))
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> tuple:
        module, names, pulled, given, sources, versions = ctx.dvk_call
        along = [t for t, one in zip(tangents, pulled) if one]
        saved = ctx.saved_tensors  # raises as eager does if one was written since
        wanted = ctx.needs_input_grad[4:]
        if torch.is_grad_enabled():
            grads = dvk_again(module, names, pulled, given, sources, versions, along, wanted)
        else:
            grads = getattr(module, names[1])(*saved, *along)
        return (None, None, None, None, *(g if want else None for g, want in zip(grads, wanted)))


def dvk_writable(results: tuple, saved: tuple, given: tuple) -> tuple:
    """The results, no views: callers may write to them in place, which autograd refuses for views that a function has made."""
    if not any(t._is_view() for t in results):
        return results
    # A write must not reach what the backward reads.
    held = {t.untyped_storage().data_ptr() for t in (*saved, *given)}
    return tuple(
        t
        if not t._is_view()
        else t.clone()
        if t.untyped_storage().data_ptr() in held
        else t.new_empty(0).set_(t)
        for t in results
    )


def dvk_stepped(
    module: Any, names: tuple[str, ...], pulled: tuple, given: tuple, sources: tuple
) -> tuple:
    """Results of a training program, differentiable where gradients are wanted."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in sources):
        return dvk_step.apply(module, names, pulled, given, *sources)
    return getattr(module, names[0])(*given)[0]


def dvk_again(
    module: Any,
    names: tuple[str, ...],
    pulled: tuple,
    given: tuple,
    sources: tuple,
    versions: list[int],
    along: list,
    wanted: tuple,
) -> list:
    """Gradients that have gradients themselves: those of the original, called again.

    Raises:
        RuntimeError: the original would compute something else by now.
    """
    if [t._version for t in sources] != versions:
        raise RuntimeError(
            "a gradient of a gradient needs the inputs and weights of the forward, which were written since"
        )
    if names[2] == "":
        raise RuntimeError(
            "a drop-in that draws random numbers has no gradient of a gradient: use the original for this step"
        )
    # It writes running statistics into copies: the step has written them already.
    held = [(part._buffers, dict(part._buffers)) for part in module.modules()]
    try:
        for own, values in held:
            own.update({key: b if b is None else b.clone() for key, b in values.items()})
        with torch.enable_grad():
            result = getattr(module, names[2])(*given)
    finally:
        for own, values in held:
            own.update(values)
    leaves = torch.utils._pytree.tree_leaves(result)
    tensors = list({id(t): t for t in leaves if isinstance(t, torch.Tensor)}.values())
    outputs = [t for t, one in zip(tensors, pulled) if one]
    pairs = [(t, d) for t, d in zip(outputs, along) if t.requires_grad]
    needed = [t for t, want in zip(sources, wanted) if want]
    how = {"create_graph": True, "allow_unused": True}
    grads = iter(torch.autograd.grad([t for t, _ in pairs], needed, [d for _, d in pairs], **how))
    return [next(grads) if want else None for want in wanted]


def dvk_thawed(weights: tuple, positions: tuple[int, ...]) -> bool:
    """A weight wants a gradient that the training program does not compute."""
    return any(weights[n].requires_grad for n in positions)
