"""The original in double precision, and in copies with other roundings: what a patched model's outputs are compared with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from dvk.tasks.state import seeded
from dvk.tasks.trees import map_tensors

Call = tuple[list[Any], dict[str, Any]]
Run = Callable[[Any, Call, int], list[tuple[str, torch.Tensor]]]
HALF = (torch.float16, torch.bfloat16)
VARIATIONS = 16
"""Perturbed copies that show which rows rounding moves, where a half-precision model differs by more than the original errs."""
DEEPEST = 5
"""Objects within objects in which an output's tensors are looked for."""


class Truths:
    """The original in float64, on its device or on the CPU.

    A half-precision model with an operator that knows no float64, such as a grouped product, has its truth in float32.

    Args:
        run: makes a call, and gives its tensors by name (default: `called`).

    Attributes:
        why: why no copy computes; empty if one does.
        dtype: the truth's name: `float64` or `float32`.
    """

    def __init__(self, model: nn.Module, run: Run | None = None):
        self.model, self.why, self.dtype = model, "", "float64"
        self.run = run or called
        self.halves = {n: p for n, p in model.named_parameters() if p.dtype in HALF}
        device = next((str(p.device) for p in model.parameters()), "cpu")
        wide = (torch.float64, torch.float32) if self.halves else (torch.float64,)
        self.places = [(where, dtype) for where in dict.fromkeys((device, "cpu")) for dtype in wide]
        self.copy: nn.Module | None = None

    def outputs(self, call: Call, seed: int) -> list[tuple[str, torch.Tensor]] | None:
        """The outputs of a call, on the CPU if they were computed there; None if they cannot be: the original itself is then the truth."""
        reasons = []
        while self.places:
            where, dtype = self.places[0]
            try:
                if self.copy is None:
                    moved = copied(self.model).to(where)
                    # Not `to(dtype)`: that takes complex buffers for real ones.
                    self.copy = moved.double() if dtype == torch.float64 else moved.float()
                result = self._called(call, seed)
            except Exception as error:  # noqa: BLE001 - a model of any kind may raise anything where it was not made for
                reasons.append(f"{dtype} on {where}: {error}".partition("\n")[0][:200])
                self.copy = None
                del self.places[0]
            else:
                self.dtype = str(dtype).removeprefix("torch.")
                return result
        self.why = "; ".join(reasons) or self.why
        return None

    def varied(self, call: Call, seed: int) -> list[dict[str, torch.Tensor]]:
        """The truth's outputs with half-precision parameters and the modules' results off by up to half of `eps`, drawn `VARIATIONS` times.

        Empty for a model without such parameters. A model whose discrete choices depend on rounding shows it here: choices of experts, or
        the sign of what a ReLU reads, which decides on a row of a gradient.
        """
        if not self.halves or self.copy is None:
            return []
        where, _ = self.places[0]
        wide = {n: p for n, p in self.copy.named_parameters() if n in self.halves}
        dice = torch.Generator(where).manual_seed(seed)
        outputs = []
        with torch.no_grad():
            try:
                for _ in range(VARIATIONS):
                    for name, p in wide.items():
                        half = self.halves[name]
                        p.copy_(half).mul_(_factors(p, _eps(half), dice))
                    with _off(self.copy, max(map(_eps, self.halves.values())), dice):
                        outputs.append(dict(self._called(call, seed)))
            except Exception:  # noqa: BLE001 - without variations a difference is an error, as before
                return []
            finally:
                for name, p in wide.items():
                    p.copy_(self.halves[name])
        return outputs

    def _called(self, call: Call, seed: int) -> list[tuple[str, torch.Tensor]]:
        where, dtype = self.places[0]
        assert self.copy is not None

        def widened(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(where, dtype if tensor.is_floating_point() else None)

        with exactly():
            return self.run(self.copy, map_tensors(widened, call), seed)


def _eps(tensor: torch.Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps)


def _factors(like: torch.Tensor, eps: float, dice: torch.Generator) -> torch.Tensor:
    """Factors as of rounding: up to half of `eps` from 1."""
    units = torch.rand(like.shape, generator=dice, device=like.device, dtype=like.dtype)
    return units.sub_(0.5).mul_(eps).add_(1)


@contextmanager
def _off(model: nn.Module, eps: float, dice: torch.Generator) -> Iterator[None]:
    """Have each module's result, and the gradient that comes back to it, off as by rounding."""

    def rounded(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value * _factors(value, eps, dice) if is_float else value

    def off(module: nn.Module, args: Any, result: Any) -> Any:
        return tuple(map(rounded, result)) if type(result) is tuple else rounded(result)

    hooks = [part.register_forward_hook(off) for part in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def exactly() -> Iterator[None]:
    """Float32 products and convolutions without TF32."""
    try:
        before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:  # the model's file has set the newer flags, and torch refuses the older
        yield
        return
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def copied(model: nn.Module) -> nn.Module:
    """A copy of the model without what drop-ins prepared in its modules: CUDA graphs and kernels cannot be copied.

    Raises:
        Exception: the model's own.
    """
    for part in model.modules():
        for key in [key for key in vars(part) if key.startswith("_dvk_")]:
            del vars(part)[key]
    return copy.deepcopy(model)


def leaves(value: Any, name: str = "", depth: int = 0) -> list[tuple[str, torch.Tensor]]:
    """Return every tensor in a result with its path, whatever holds it."""
    if isinstance(value, torch.Tensor):
        return [(name or "output", value)]
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, (list, tuple)):
        inside = list(enumerate(value))
    elif (
        depth < DEEPEST and hasattr(value, "__dict__") and not isinstance(value, (type, nn.Module))
    ):
        inside = list(vars(value).items())
    else:
        inside = []
    return [
        one for key, held in inside for one in leaves(held, f"{name}.{key}".lstrip("."), depth + 1)
    ]


def called(model: Callable[..., Any], call: Call, seed: int) -> list[tuple[str, torch.Tensor]]:
    """Call with copies of the arguments, from a seed; return every tensor of the result with its path."""
    args, kwargs = map_tensors(lambda t: t.clone(), call)
    with seeded(seed):
        return leaves(model(*args, **kwargs))
