"""A generated program: constants, inputs, weights and statements, before names and style are chosen.

Every operator goes through `emit`, which refuses (`UnfitOperands`) results that the samples show to be degenerate. `attempt` undoes the
additions of a refused step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from dvk.taskgen.dice import Dice
from dvk.taskgen.sizes import ONE, DeviceProfile, Dim, Shape, count, small_of
from dvk.taskgen.values import Sample, TaskValue, UnfitOperands, checked

HALF = {"float16": "half", "bfloat16": "bfloat16"}


@dataclass
class Statement:
    """One operator, or a few in one expression."""

    template: str
    """Python with `{0}`, `{1}`… for the arguments."""
    arguments: tuple[TaskValue, ...]
    results: tuple[TaskValue, ...]
    module: str = ""
    """Constructor of the submodule that the template calls as `{m}`; a module that could stand in an nn.Sequential."""
    plain: str = ""
    """Alternative to an in-place template, for a first argument that is still needed."""


@dataclass
class ConstructorItem:
    """An attribute that the constructor creates."""

    name: str
    text: str
    """Python that creates it, over module constants."""
    after: tuple[str, ...] = ()
    """Further lines, with `{}` for the attribute."""
    buffer: bool = False


@dataclass
class TaskProgram:
    """The program under construction; `families` is its operator sequence."""

    dice: Dice
    profile: DeviceProfile
    dtype: str
    constants: dict[str, Dim] = field(default_factory=dict)
    inputs: list[tuple[TaskValue, str]] = field(default_factory=list)
    held: list[ConstructorItem] = field(default_factory=list)
    scalars: dict[str, float] = field(default_factory=dict)
    """Constructor arguments that are numbers."""
    statements: list[Statement] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    families: list[str] = field(default_factory=list)
    outputs: list[TaskValue] = field(default_factory=list)
    eval_mode: bool = False
    whole: bool = False
    """A reduction to one number occurs: inputs vary in scale from draw to draw."""
    names: set[str] = field(default_factory=set)

    # -------------------------------------------------- undo

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo the block's additions if it ends in `UnfitOperands`, which propagates."""
        kept = (
            dict(self.constants),
            list(self.inputs),
            list(self.held),
            dict(self.scalars),
            list(self.statements),
            list(self.operators),
            list(self.families),
            self.eval_mode,
            self.whole,
            set(self.names),
        )
        try:
            yield
        except UnfitOperands:
            (
                self.constants,
                self.inputs,
                self.held,
                self.scalars,
                self.statements,
                self.operators,
                self.families,
                self.eval_mode,
                self.whole,
                self.names,
            ) = kept
            raise

    # -------------------------------------------------- names, sizes, numbers

    def unique(self, *wanted: str) -> str:
        """The first free name, else the last with a number."""
        for name in wanted:
            if name not in self.names:
                self.names.add(name)
                return name
        number = 2
        while f"{wanted[-1]}{number}" in self.names:
            number += 1
        self.names.add(f"{wanted[-1]}{number}")
        return f"{wanted[-1]}{number}"

    def constant(self, name: str, native: int, small: int | None = None) -> Dim:
        """A named size."""
        name = self.unique(name)
        dim = Dim(
            name, native, small_of(self.dice, native) if small is None else min(small, native)
        )
        self.constants[name] = dim
        return dim

    def number(self, value: float) -> str:
        """A number in forward: mostly literal, sometimes a constructor argument stored on self."""
        if self.dice.chance(0.85) or len(self.scalars) > 2:
            return repr(value)
        name = self.unique(
            *self.dice.shuffled(("scale", "alpha", "temperature", "factor")), "coefficient"
        )
        self.scalars[name] = value
        return f"self.{name}"

    # -------------------------------------------------- leaves

    def normal_sample(self, varied: float = 0.0, scale: float = 1.0, centre: float = 0.0) -> Sample:
        """Normal numbers; rows differ in scale by up to `varied`."""
        result: list[float] = []
        for _ in range(8):
            factor = scale * (1 + varied * (self.dice.random() - 0.3))
            row = [self.dice.normal() for _ in range(8)]
            mean = sum(row) / 8
            result += [factor * (v - 0.7 * mean) + centre for v in row]
        return tuple(result)

    def input(self, shape: Shape, names: Sequence[str] = ("x",), kind: str = "normal") -> TaskValue:
        """A forward parameter. Kinds: normal, positive, unit (0 to 1), sign, mask, probabilities."""
        dice, dtype = self.dice, self.dtype
        sizes = ", ".join(d.text for d in shape)
        floor: float | None = None
        if kind == "mask":
            text, dtype, sample = (
                f"torch.rand({sizes}) > {dice.pick((0.2, 0.3, 0.5))}",
                "bool",
                tuple(float(dice.chance(0.6)) for _ in range(64)),
            )
        elif kind in ("unit", "positive"):
            low = 0.0 if kind == "unit" else 0.1
            floor, sample = low, tuple(low + dice.random() for _ in range(64))
            text = f"torch.rand({sizes})" + (" + 0.1" if low else "")
        elif kind == "sign":
            sample = tuple(1.0 if dice.chance(0.5) else -1.0 for _ in range(64))
            text = f"torch.where(torch.rand({sizes}) > 0.5, 1.0, -1.0)"
        elif kind == "probabilities":
            floor, sample = 0.0, tuple(dice.random() / shape[-1].native for _ in range(64))
            text = f"torch.rand({sizes}).softmax(-1)"
        else:
            text, sample = self._normal(shape, sizes)
        value = TaskValue(shape, dtype, sample, "input", floor, name=self.unique(*names))
        if dtype in HALF:
            text = f"({text}).{HALF[dtype]}()" if " " in text else f"{text}.{HALF[dtype]}()"
        self.inputs.append((value, text))
        return value

    def _normal(self, shape: Shape, sizes: str) -> tuple[str, Sample]:
        dice = self.dice
        row = f"{', '.join(d.text for d in shape[:-1])}, 1" if len(shape) > 1 else "1"
        style = dice.weighted({"plain": 4, "rows": 4, "scaled": 2, "shifted": 1.5})
        if style == "rows" and len(shape) > 1:
            return f"torch.randn({sizes}) * (0.5 + torch.rand({row}))", self.normal_sample(1.0)
        if style == "scaled":
            scale = dice.pick((0.5, 0.7, 1.5, 2.0))
            return f"torch.randn({sizes}) * {scale}", self.normal_sample(0.0, scale)
        if style == "shifted":
            centre = dice.pick((-0.5, 0.25, 0.5, 1.0))
            return (
                f"torch.randn({sizes}) {'+' if centre > 0 else '-'} {abs(centre)}",
                self.normal_sample(0.0, 1.0, centre),
            )
        return f"torch.randn({sizes})", self.normal_sample()

    def labels(self, shape: Shape, classes: Dim) -> TaskValue:
        """Integer targets below `classes`."""
        sizes = ", ".join(d.text for d in shape)
        value = TaskValue(
            shape, "int64", self.normal_sample(), "input", name=self.unique("target", "labels")
        )
        self.inputs.append((value, f"torch.randint({classes.text}, ({sizes},))"))
        return value

    def parameter(
        self,
        shape: Shape,
        centre: float,
        reach: float,
        names: Sequence[str],
        buffer: bool | None = None,
    ) -> TaskValue:
        """A drawn weight with values in `centre` ± `reach`: never left at ones or zeros."""
        dice = self.dice
        sizes = ", ".join(d.text for d in shape)
        low, high = round(centre - reach, 3), round(centre + reach, 3)
        texts = {
            f"torch.empty({sizes}).uniform_({low}, {high})": 2.0,
            f"torch.rand({sizes}) * {round(2 * reach, 3)}"
            + (f" + {low}" if low > 0 else f" - {-low}" if low else ""): 1.0,
        }
        if centre - 2 * reach > 0 or centre <= 0:
            texts[
                f"torch.randn({sizes}) * {round(reach / 2, 3)}" + (f" + {centre}" if centre else "")
            ] = 2.0
        buffer = dice.chance(0.12) if buffer is None else buffer
        name = self.unique(*names)
        self.held.append(ConstructorItem(name, dice.weighted(texts), buffer=buffer))
        sample = tuple([low + dice.random() * (high - low) for _ in range(8)] * 8)
        if all(d == ONE for d in shape):
            sample = (low + dice.random() * (high - low),) * 64
        floor = low if low > 0 and "randn" not in self.held[-1].text else None
        return TaskValue(shape, self.dtype, sample, "held", floor, tied=False, name=f"self.{name}")

    def module(self, constructor: str, names: Sequence[str], after: Sequence[str] = ()) -> str:
        """A submodule; returns its attribute's text."""
        name = self.unique(*names)
        self.held.append(ConstructorItem(name, constructor, tuple(after)))
        return f"self.{name}"

    # -------------------------------------------------- operators

    def emit(
        self,
        operator: str,
        families: Sequence[str],
        template: str,
        arguments: Sequence[TaskValue],
        sample: Sequence[float],
        *,
        shape: Shape | None = None,
        floor: float | None = None,
        dtype: str | None = None,
        tied: bool | None = None,
        view: bool = False,
        module: str = "",
        plain: str = "",
    ) -> TaskValue:
        """Add a statement with one result.

        Raises:
            UnfitOperands: the result is degenerate or too large for the profile.
        """
        shape = arguments[0].shape if shape is None else shape
        dtype = arguments[0].dtype if dtype is None else dtype
        if count(shape) > self.profile.high:
            raise UnfitOperands("too many elements")
        if dtype != "bool":
            sample = checked(sample, dtype)
        value = TaskValue(
            shape,
            dtype,
            tuple(sample),
            "view" if view else "value",
            floor,
            any(a.tied for a in arguments) if tied is None else tied,
        )
        self.statements.append(Statement(template, tuple(arguments), (value,), module, plain))
        self.operators.append(operator)
        self.families += families
        return value

    def emit_several(
        self, template: str, argument: TaskValue, pieces: Sequence[tuple[Shape, Sample]]
    ) -> list[TaskValue]:
        """Add a statement with several results that are views of one value."""
        values = [
            TaskValue(s, argument.dtype, sample, "view", argument.floor, argument.tied)
            for s, sample in pieces
        ]
        self.statements.append(Statement(template, (argument,), tuple(values)))
        self.operators.append("chunk")
        return values
