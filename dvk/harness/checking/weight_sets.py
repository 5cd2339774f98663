"""Weight sets: the reference as constructed, drawn again under a secret seed, and in integers.

A problem whose norms scale by ones and shift by zeros does not detect a kernel that omits both, and weights drawn under a known seed can be
written into a kernel as constants. So the judge changes them, through `load_state_dict`, between calls of one candidate.

    0          as constructed
    1, 2, …    every value multiplied by exp(0.25·n): signs, zeros and magnitudes stay as the module's author chose
               (causal patterns, positive variances, initialisation to scale); tensors of zeros
               become small normals
    INTEGERS   -1, 0 and 1, so that linear layers of integer inputs are exact; positive tensors 1 and 2

Parameters change, the running statistics of norms, and quantised operands in buffers, each over the range of its role (`quantised_draws`);
other buffers are the module's tables and masks and stay, as do non-persistent ones. Tied parameters stay tied.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from dvk.harness.checking import quantised_draws
from dvk.harness.checking.narrow_floats import narrow
from dvk.harness.checking.quantised_operands import Operand
from dvk.harness.seeds import derived

INTEGERS = -1
SPREAD = 0.25
"""Standard deviation of a factor's logarithm; factors are within [0.53, 1.87]."""
SMALL = 0.1
KEEP_BYTES = 256 << 20
NONE: Mapping[str, Operand] = MappingProxyType({})
STATISTICS = ("running_mean", "running_var")

State = dict[str, Any]


class WeightSets:
    """The weight sets of one module.

    Args:
        model: the reference, as constructed.
        seed: secret seed; equal seeds give equal sets.
        operands: quantised operands among its parameters and persistent buffers, by name.
    """

    def __init__(self, model: nn.Module, seed: int, operands: Mapping[str, Operand] = NONE):
        self._seed, self._operands = seed, operands
        self._constructed: State = {
            name: value.detach().clone() if isinstance(value, torch.Tensor) else value
            for name, value in model.state_dict().items()
        }
        self._tied = _groups(model, self._constructed, operands)
        self._kept: dict[int, State] = {}
        self._retired: set[int] = set()
        self._large = (
            sum(
                value.nbytes
                for value in self._constructed.values()
                if isinstance(value, torch.Tensor)
            )
            > KEEP_BYTES
        )

    @property
    def count(self) -> int:
        """Return tensors that a set changes."""
        return len(self._tied)

    @property
    def names(self) -> frozenset[str]:
        """Return the bytes of the tensors that a set changes."""
        return frozenset(name for names in self._tied for name in names)

    def state(self, number: int) -> State:
        """Return the whole state_dict of a set; read-only."""
        if number == 0 or not self._tied or number in self._retired:
            return self._constructed
        if number not in self._kept:
            made = self._make(number)
            if sum(t.numel() * t.element_size() for t in made.values()) > KEEP_BYTES:
                return {**self._constructed, **made}
            self._kept[number] = made
        return {**self._constructed, **self._kept[number]}

    def effective(self, number: int) -> int:
        """Return the set that `number` denotes: 0 if there is nothing to change or the set was retired; 1 for further sets of a large
        module, of which a draw takes seconds."""
        number = 1 if number > 1 and self._large else number
        return 0 if not self._tied or number in self._retired else number

    def retire(self, number: int) -> None:
        """Map `number` to set 0 from now on: the reference does not work with it."""
        self._retired.add(number)
        self._kept.pop(number, None)

    def _make(self, number: int) -> dict[str, torch.Tensor]:
        made: dict[str, torch.Tensor] = {}
        for position, names in enumerate(self._tied):
            base = self._constructed[names[0]]
            generator = torch.Generator(base.device).manual_seed(
                derived(self._seed, "weights", number, position)
            )
            operand = next((self._operands[n] for n in names if n in self._operands), None)
            made |= dict.fromkeys(names, _drawn(number, operand, base, generator))
        return made


def _drawn(
    number: int, operand: Operand | None, base: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    if operand is not None:
        made = (
            quantised_draws.exact(operand, base, generator)
            if number == INTEGERS
            else quantised_draws.redrawn(
                operand, base, generator, cautious=True, uneven=number % 2 == 0
            )
        )
        # Values that do not look like their role are an ordinary weight's, which must not stay as constructed.
        if made is not base or narrow(base) or not base.is_floating_point():
            return made
    return _integers(base, generator) if number == INTEGERS else _scaled(base, generator)


def _groups(model: nn.Module, state: State, operands: Mapping[str, Operand]) -> list[list[str]]:
    """Return names of the tensors that change, with those of one tied tensor together."""
    tensors: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
    tensors |= {
        n: b
        for n, b in model.named_buffers(remove_duplicate=False)
        if n.rpartition(".")[2] in STATISTICS or n in operands
    }
    groups: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        known = state.get(name)
        if (
            isinstance(known, torch.Tensor)
            and known.shape == tensor.shape
            and tensor.numel()
            and (known.is_floating_point() or name in operands)
        ):
            groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def _scaled(base: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    wide = base.double() if base.dtype is torch.float64 else base.float()
    normal = torch.randn(
        wide.shape, dtype=wide.dtype, device=wide.device, generator=generator
    ).clamp_(-2.5, 2.5)
    if not bool(wide.any()):
        fan_in = wide[0].numel() if wide.dim() > 1 else 1
        return normal.mul_(0.5 / fan_in**0.5 if wide.dim() > 1 else SMALL).to(base.dtype)
    return normal.mul_(SPREAD).exp_().mul_(wide).to(base.dtype)


def _integers(base: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    low, high = float(base.min()), float(base.max())
    if base.numel() == 1:
        return base.sign() * base.abs().round().clamp(min=1)
    if low > 0 or high < 0:
        return _draw(base, 1, 2, generator) * (1 if low > 0 else -1)
    if low == high == 0:
        return _draw(base, -1, 1, generator)
    drawn = _draw(base, 0 if low == 0 else -1, 0 if high == 0 else 1, generator)
    # Many zeros are a pattern, e.g. a causal one, not chance.
    return drawn * (base != 0) if float((base == 0).float().mean()) > 0.01 else drawn


def _draw(base: torch.Tensor, low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.randint(
        low, high + 1, base.shape, dtype=torch.int8, device=base.device, generator=generator
    )
    return drawn.to(base.dtype)
