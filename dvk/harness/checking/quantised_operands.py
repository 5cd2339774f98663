"""Roles of quantised operands, observed while the reference runs: codes, their scales, their zero points, their exponents.

A weight of 4 bits is a tensor of bytes or words, beside scales and zero points for groups of it. Their native values hide errors: scales
are nearly equal, zero points are all 8, and a buffer never changes. So the judge draws them again (`quantised_draws`), over the range that
their role admits.

Inputs, parameters and persistent buffers are followed through conversions, views, shifts and masks. Integers of 8 bits, words whose bits
are taken apart, and floats of 8 bits are codes once they are multiplied; what multiplies or divides them, or their product, with fewer
elements is a scale; what is subtracted from them is a zero point; what a power of two is raised to is an exponent.

In doubt a tensor has no role, since ordinary tasks hold integers, too: positions and slots in words, masks of two values, bytes of an
image with its mean. Their values then change as those of any other task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dvk import aten
from dvk.harness.checking.narrow_floats import PAIRS, narrow
from dvk.tasks.trees import named_tensors

Role = Literal["codes", "packed", "scale", "zero", "exponent"]

# Names are without underscores at their ends.
_MOVES = frozenset(
    name.strip("_")
    for name in (
        *aten.of(*aten.REARRANGING),
        "reshape_alias",
        "repeat",
        "repeat_interleave",
        "where",
    )
)
_BITS = frozenset("bitwise_and and bitwise_right_shift rshift bitwise_left_shift lshift".split())
_FIRST_ONLY = frozenset(
    "index index_select gather embedding take_along_dim".split() + sorted(_BITS)
)
"""The other operand is an index, a mask or a number of bits."""
_PARTS = frozenset("floor_divide remainder div".split())
_SCALED_MM, _INT8PACK_MM = "scaled_mm", "weight_int8pack_mm"
_PRODUCTS = frozenset(
    {name.strip("_") for name in aten.FACTORS} | {"int_mm", _SCALED_MM, _INT8PACK_MM}
)
_DIVISORS = (4, 16, 64)
"""Parts of a byte are taken by `//` and `%` of these: two bits or four."""
_KEEPS = frozenset("add sub rsub neg sum mul div round clamp".split())
SOURCES = (torch.int8, torch.uint8, torch.int16, torch.int32)


@dataclass(frozen=True)
class Operand:
    """What is known of one tensor."""

    role: Role
    bits: int = 8
    """Bits of a code that was taken out of a byte or word; of a zero point, those of its codes."""


@dataclass(frozen=True)
class Operands:
    """Quantised operands of a task: inputs by their position among the call's tensors, weights and buffers by name."""

    inputs: Mapping[int, Operand]
    weights: Mapping[str, Operand]

    def __bool__(self) -> bool:
        return bool(self.inputs or self.weights)


NO_OPERANDS = Operands({}, {})


def may_be_code(tensor: torch.Tensor) -> bool:
    """Whether its type may hold codes."""
    return (tensor.dtype in SOURCES or narrow(tensor)) and tensor.numel() > 1


def observed(
    run: Callable[[], Any], inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
) -> Operands:
    """Return the roles of inputs and of weights in a call; none without a tensor that may hold codes.

    Args:
        run: calls the reference on `inputs`, with `state`.
        inputs: the call's tensors.
        state: parameters and persistent buffers, the live tensors.
    """
    sources = [*inputs, *state.values()]
    if not any(may_be_code(t) for t in sources):
        return NO_OPERANDS
    trail = _Trail(sources, len(inputs))
    with trail:
        run()
    found = trail.operands()
    names = {len(inputs) + n: name for n, name in enumerate(state)}
    return Operands(
        {n: role for n, role in found.items() if n < len(inputs)},
        {names[n]: role for n, role in found.items() if n in names},
    )


@dataclass(frozen=True)
class _Made:
    """What a tensor was made of, by numbers of sources."""

    of: frozenset[int] = frozenset()
    """It is a rearranged, converted or unpacked copy of these, or a product of such."""
    codes: frozenset[int] = frozenset()
    """Codes whose values it holds, scaled, shifted or summed."""


_NOTHING = _Made()


class _Trail(TorchDispatchMode):
    def __init__(self, sources: Sequence[torch.Tensor], num_inputs: int):
        super().__init__()
        self._sources = list(sources)
        self._alive: list[torch.Tensor] = list(sources)
        self._made: dict[int, _Made] = {}
        for number, tensor in enumerate(sources):
            if tensor.layout is torch.strided and tensor.numel():
                known = self._made.get(_memory(tensor), _NOTHING)
                self._made[_memory(tensor)] = _Made(known.of | {number})
        self._roles: dict[int, Role] = {}
        self._bits: dict[int, int] = {}
        self._zeros: dict[int, int] = {}
        self._num_inputs = num_inputs
        self._two: dict[int, bool] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's default would import torch._dynamo at the first operator, which takes 2 s

    def operands(self) -> dict[int, Operand]:
        """Return the roles found, by the number of the source."""
        result = {}
        for number, role in self._roles.items():
            if role == "zero" and self._roles.get(self._zeros[number]) != "codes":
                continue  # a difference of integers that nothing multiplies
            of = self._zeros.get(number, number)
            bits = self._bits.get(of, 8)
            packed = role in ("codes", "zero") and number in self._bits
            result[number] = Operand("packed" if packed else role, bits)
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2].strip("_")
        made = self._noted(name, list(args), result)
        if made is not _NOTHING:
            for _, tensor in named_tensors(result):
                if tensor.layout is not torch.strided:
                    continue
                if made.of or made.codes:
                    self._alive.append(
                        tensor
                    )  # another tensor at its address would be taken for it
                    self._made[_memory(tensor)] = made
                else:
                    self._made.pop(_memory(tensor), None)
        return result

    def _of(self, value: Any) -> _Made:
        known = isinstance(value, torch.Tensor) and value.layout is torch.strided
        return self._made.get(_memory(value), _NOTHING) if known else _NOTHING

    def _noted(self, name: str, args: list[Any], result: Any) -> _Made:
        """Note roles that an operator shows, and return what its result is made of."""
        given = [t for _, t in named_tensors(args[:1] if name in _FIRST_ONLY else args)]
        made = [self._of(t) for t in given]
        if name in _FIRST_ONLY - _BITS:
            made.append(self._looked_up(args[1:]))
        if not any(m.of or m.codes for m in made):
            return _NOTHING
        of = frozenset().union(*[m.of for m in made])
        codes = frozenset().union(*[m.codes for m in made])
        parts = name in _BITS or (name in _PARTS and len(given) == 1 and _whole(result))
        if parts:
            self._unpacked(name, of, args)
        if parts or name in _MOVES:
            return _Made(of, codes)
        if name in ("exp2", "pow", "ldexp"):
            return self._raised(name, args, result)
        if name in _PRODUCTS:
            return self._multiplied(name, args)
        if len(given) == 1:
            copy = of if name in ("add", "sub", "mul", "neg") else frozenset()
            return _Made(copy, codes if name in _KEEPS else frozenset())
        if name in ("mul", "div"):
            return self._scaled(given, made, result)
        if name in ("add", "sub", "rsub"):
            return self._shifted(given, made, name == "add")
        return _NOTHING

    def _looked_up(self, indices: list[Any]) -> _Made:
        """Note unpacked codes that index a table of their values."""
        of = frozenset().union(*[self._of(t).of for _, t in named_tensors(indices)])
        codes = frozenset(n for n in of if n in self._bits and self._may_be_code(n))
        for number in codes:
            self._roles.setdefault(number, "codes")
        return _Made(frozenset(), codes)

    def _unpacked(self, name: str, of: frozenset[int], args: list[Any]) -> None:
        number_given = next((a for a in args if isinstance(a, int)), 0)
        mask = number_given if "and" in name else 0
        if not 0 <= mask < 256 or (name in _PARTS and number_given not in _DIVISORS):
            return
        for number in of:
            source = self._sources[number]
            if source.dtype is PAIRS or (_packs(source) and (_byte(source) or name in _BITS)):
                self._bits.setdefault(number, 4)
                if mask:
                    self._bits[number] = mask.bit_length()

    def _raised(self, name: str, args: list[Any], result: Any) -> _Made:
        exponent = args[0] if name == "exp2" else args[1] if len(args) > 1 else None
        of = self._of(exponent).of
        for number in of if name != "pow" or _is_two(args[0]) else ():
            if self._sources[number].dtype in (torch.int8, torch.uint8):
                self._roles[number] = "exponent"
        return _Made(of) if of else self._of(args[0])

    def _codes(self, made: _Made) -> frozenset[int]:
        """Return the sources of a factor that are codes, and note them."""
        raw = frozenset(n for n in made.of if self._may_be_code(n))
        for number in raw:
            self._roles.setdefault(number, "codes")
        return made.codes | raw

    def _multiplied(self, name: str, args: list[Any]) -> _Made:
        factors = aten.FACTORS.get(name, (0, 1))
        codes = frozenset().union(*[self._codes(self._of(args[n])) for n in factors])
        for scale in args[2:4] if name in (_SCALED_MM, _INT8PACK_MM) else ():
            if isinstance(scale, torch.Tensor):
                self._note_scale(self._of(scale), 1 << 62, codes)
        return _Made(frozenset(), codes)

    def _scaled(self, given: list[torch.Tensor], made: list[_Made], result: Any) -> _Made:
        if not any(self._looks_coded(m) for m in made):
            return _Made(frozenset().union(*[m.of for m in made]))
        codes = frozenset().union(*[self._codes(m) for m in made if self._looks_coded(m)])
        for tensor, one in zip(given, made, strict=True):
            if not self._looks_coded(one) and tensor.dtype.is_floating_point:
                self._note_scale(one, result.numel(), codes)
        return _Made(frozenset(), codes)

    def _looks_coded(self, made: _Made) -> bool:
        return bool(made.codes) or any(self._may_be_code(n) for n in made.of)

    def _may_be_code(self, number: int) -> bool:
        source = self._sources[number]
        told = number in self._bits or (source.dtype.itemsize == 1 and not self._two_values(number))
        return told and may_be_code(source) and self._roles.get(number) not in ("exponent", "zero")

    def _two_values(self, number: int) -> bool:
        """Whether it is a mask: bytes of two values at most."""
        if number not in self._two:
            source = self._sources[number]
            known = source.numel() > 0 and not narrow(source)
            self._two[number] = known and bool(
                ((source == source.min()) | (source == source.max())).all()
            )
        return self._two[number]

    def _plain_bytes(self, number: int) -> bool:
        """Whether it is an input of unsigned bytes that nothing took apart, such as an image."""
        plain = self._sources[number].dtype is torch.uint8 and number not in self._bits
        return plain and number < self._num_inputs

    def _note_scale(self, made: _Made, elements: int, codes: frozenset[int]) -> None:
        """Note sources of what multiplies `codes` as scales, except weights that multiply images."""
        image = bool(codes) and all(map(self._plain_bytes, codes))
        for number in made.of:
            source = self._sources[number]
            if source.is_floating_point() and not narrow(source) and source.numel() < elements:
                if bool((source >= 0).all()) and not (image and number >= self._num_inputs):
                    self._roles.setdefault(number, "scale")
            elif source.dtype is torch.float8_e8m0fnu:
                self._roles[number] = "exponent"

    def _shifted(self, given: list[torch.Tensor], made: list[_Made], adds: bool) -> _Made:
        """Take the smaller of two sources, of which one is of codes, as their zero point."""
        of = [sorted(m.of, key=lambda n: -self._sources[n].nbytes) for m in made]
        if all(of) and any(self._looks_coded(m) for m in made) and not any(m.codes for m in made):
            first, second = sorted((of[0][0], of[1][0]), key=lambda n: -self._sources[n].nbytes)
            smaller = self._sources[second].nbytes < self._sources[first].nbytes
            if first != second and smaller and self._may_be_zero(first, second, adds):
                self._roles[second], self._zeros[second] = "zero", first
                return made[0] if first in made[0].of else made[1]
        codes = frozenset().union(*[m.codes for m in made])
        return _Made(frozenset(), codes)

    def _may_be_zero(self, first: int, second: int, adds: bool) -> bool:
        """Whether `second` may be the zero point of the codes `first`, rather than an image's mean, a bias or an offset of indices."""
        small = self._sources[second]
        if adds and first not in self._bits and not narrow(self._sources[first]):
            return False
        if not small.is_floating_point():
            return small.dtype is not torch.int64 or not self._plain_bytes(first)
        whole = bool((small == small.round()).all()) and bool(small.any())
        return whole and not self._plain_bytes(first)


def _packs(source: torch.Tensor) -> bool:
    """Whether an integer's bits may be several codes: bytes, and words of which some have the sign bit, or all are one code repeated.

    Indices, counts and slots are words, too, of which bits and remainders are taken; they are not negative.
    """
    if source.dtype not in (*SOURCES, torch.int64) or not source.numel():
        return False
    if _byte(source):
        return not bool(((source == 0) | (source == 1)).all())
    ones = ((1 << 8 * source.itemsize) - 1) // 15  # one bit of every four
    return bool((source < 0).any()) or bool(((source > 0) & (source % ones == 0)).all())


def _is_two(base: Any) -> bool:
    if isinstance(base, torch.Tensor):
        return base.numel() == 1 and float(base) == 2
    return bool(base == 2)


def _byte(source: torch.Tensor) -> bool:
    return source.dtype.itemsize == 1


def _whole(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and not result.is_floating_point()


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
