"""What is changed in torch, logging and warnings while `torch.export` traces a module."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dvk import aten


@contextmanager
def no_checks() -> Iterator[None]:
    """Make functions that read values only to raise return NaN for such values instead: a graph has no branch on values."""
    import torch

    functions, look = torch.nn.functional, torch.any
    whole = functions.gaussian_nll_loss

    def gaussian_nll_loss(input: Any, target: Any, var: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.any is not look:  # it calls itself under a name of dvk's
            return whole(input, target, var, *args, **kwargs)
        torch.any = lambda *_: False  # type: ignore[assignment]
        try:
            return whole(
                input,
                target,
                torch.where(var < 0, float("nan"), var) if isinstance(var, torch.Tensor) else var,
                *args,
                **kwargs,
            )
        finally:
            torch.any = look

    functions.gaussian_nll_loss = gaussian_nll_loss
    try:
        yield
    finally:
        functions.gaussian_nll_loss = whole


DECOMPOSED_FUNCTIONS = aten.having("decomposed")
"""Functions of torch made of composable operators; whole they would stay calls of up to a dozen kernels."""


@contextmanager
def apart() -> Iterator[None]:
    """Capture the functions in `DECOMPOSED_FUNCTIONS` as the operators PyTorch makes them of."""
    import torch

    def made_of(function: Any, whole: Any) -> Any:
        known = {argument.name for argument in whole._schema.arguments}

        def parts(*args: Any, **kwargs: Any) -> Any:
            named = {
                "self" if name == "input" and name not in known else name: value
                for name, value in kwargs.items()
            }
            if not named.keys() <= known:  # as with `out`
                return function(*args, **kwargs)
            # Export keeps operators whole by a function mode and by a separate `decompose`.
            with torch._C.DisableTorchFunction():
                return whole._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **named)

        return parts

    before = {name: getattr(torch, name) for name in DECOMPOSED_FUNCTIONS}
    for name, function in before.items():
        setattr(torch, name, made_of(function, getattr(torch.ops.aten, name).default))
    try:
        yield
    finally:
        for name, whole in before.items():
            setattr(torch, name, whole)


@contextmanager
def quietly() -> Iterator[None]:
    """torch.export logs and warns at length about what it refuses; the reason is in the exception."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def no_stack_traces(wanted: bool) -> Iterator[None]:
    """Skip stack traces: one per operator is a sixth of the tracing time, and only a failed capture reads them."""
    from torch.fx import config

    if not wanted:
        yield
        return

    before = getattr(config, "do_not_emit_stack_traces", False)
    config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        config.do_not_emit_stack_traces = before
