"""Training steps of drop-ins: the forward program saves what the backward program reads. The text travels inside drop-ins, as that of
`guards.py` does."""

from __future__ import annotations

from typing import Any

import torch


class dvk_step(torch.autograd.Function):
    """A forward program and its backward program as one differentiable call."""

    @staticmethod
    def forward(ctx: Any, call: tuple, *sources: Any) -> tuple:
        module, (run, _, _), pulled, given = call
        results, saved = getattr(module, run)(*given)
        for one in results:
            if one._is_view():
                results = dvk_writable(results, saved, given)
                break
        ctx.save_for_backward(*saved)
        # For a backward of the backward alone, which starts from the original.
        ctx.dvk_call = call, sources, [t._version for t in sources]
        if pulled is not None:
            wanted = ctx.needs_input_grad[1:]
            apart = [one is not True and not any(wanted[n] for n in one) for one in pulled]
            ctx.mark_non_differentiable(*(t for t, one in zip(results, apart) if one))
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> tuple:
        call, sources, versions = ctx.dvk_call
        module, names, pulled, arguments = call
        if pulled is not None:
            tangents = tuple([t for t, one in zip(tangents, pulled) if one])
        given = [*ctx.saved_tensors, *tangents]  # raises as eager does if one was written since
        # The program lets go of each after its last use, unless the graph is kept for another backward.
        ctx.maybe_clear_saved_tensors()
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():
            pulled = pulled or (True,) * len(tangents)
            grads = dvk_again(
                module, names, pulled, arguments, sources, versions, tangents, wanted[1:]
            )
        elif torch.is_autocast_enabled(module._dvk_device):
            with torch.autocast(module._dvk_device, enabled=False):
                grads = getattr(module, names[1])(given)
        else:
            grads = getattr(module, names[1])(given)
        if all(wanted[1:]):
            return (None, *grads)
        return (None, *(g if want else None for g, want in zip(grads, wanted[1:])))


def dvk_writable(results: tuple, saved: tuple, given: tuple) -> tuple:
    """The results, no views: callers may write to them in place, which autograd refuses for views that a function has made."""
    if not any(t._is_view() for t in results):
        return results
    # A write must not reach what the backward reads.
    tensors = [t for t in (*saved, *given) if isinstance(t, torch.Tensor)]
    held = {t.untyped_storage().data_ptr() for t in tensors}
    return tuple(
        t
        if not t._is_view()
        else t.clone()
        if t.untyped_storage().data_ptr() in held
        else t.new_empty(0).set_(t)
        for t in results
    )


def dvk_stepped(call: tuple, sources: tuple) -> tuple:
    """Results of a training program, differentiable where gradients are wanted.

    Args:
        call: the module; names of its programs and of the original; which results have gradients, None if all have; the arguments.
        sources: the tensors that gradients are computed of.
    """
    device = call[0]._dvk_device
    if torch.is_autocast_enabled(
        device
    ):  # it changes nothing in the original, but may cast parts of it
        with torch.autocast(device, enabled=False):
            return dvk_stepped(call, sources)
    if torch.is_grad_enabled():
        for one in sources:
            if one.requires_grad:
                # Function.apply without its search for arguments of torch.func, which the guards have refused.
                return super(torch.autograd.Function, dvk_step).apply(call, *sources)
    return getattr(call[0], call[1][0])(*call[3])[0]


def dvk_cast(module: Any) -> Any:
    """The autocast that a module's programs were made for."""
    under = module._dvk_under
    return torch.autocast(module._dvk_device, under, enabled=under is not None)


def dvk_again(
    module: Any,
    names: tuple[str, ...],
    pulled: tuple,
    given: tuple,
    sources: tuple,
    versions: list[int],
    along: tuple,
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
        with torch.enable_grad(), dvk_cast(module):
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
