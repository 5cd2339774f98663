"""A whole back end in one file: kernels as PyTorch expressions over index grids. It is slow, and only shows the interface.

dvk optimize model.py --backend tests/composer/torch_backend.py:Torch
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dvk.backends import Backend
from dvk.composer.codegen.base import Codegen, Inplace, KernelSet, ModuleText
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Instr, Kernel, Ref
from dvk.composer.ir.schedules.base import Schedule
from dvk.target import DEFAULT, Target

FORMS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "not": "~{0}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "max": "torch.maximum({0}, {1})",
    "min": "torch.minimum({0}, {1})",
    "where": "torch.where({0}.bool(), {1}, {2})",
    "as": "{0}",
}
CALLS = (
    "exp",
    "log",
    "log1p",
    "expm1",
    "tanh",
    "erf",
    "sin",
    "cos",
    "exp2",
    "log2",
    "sqrt",
    "rsqrt",
    "abs",
    "sigmoid",
    "reciprocal",
    "floor",
    "ceil",
    "trunc",
    "round",
    "sign",
    "isnan",
    "isinf",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "log10",
)
REDUCTIONS = {
    "sum": "{0}.sum({1}, True)",
    "prod": "dvk_prod({0}, {1})",
    "max": "{0}.amax({1}, True)",
    "min": "{0}.amin({1}, True)",
}


@dataclass(frozen=True, kw_only=True)
class Whole(Schedule):
    """Everything at once: the only schedule."""

    kind: Literal["whole"] = "whole"


class Torch(Backend, Codegen):
    """See the module."""

    title = "PyTorch"
    devices = ("cpu", "cuda")
    install = "nothing is missing"
    schedule_types = (Whole,)

    def available(self) -> str | None:
        return None

    def schedules(self, kernel: Kernel, target: Target = DEFAULT) -> list[Schedule]:
        return [Whole()]

    def render(self, kernel: Kernel, schedule: Schedule, inplace: Inplace | None = None) -> str:
        """A function of the inputs and outputs: each loop variable is a dimension of the grid."""
        variables = (*kernel.rows, *kernel.reduced)
        reduced = tuple(range(len(kernel.rows), len(variables)))
        names = {var: f"i{n}" for n, var in enumerate(variables)}
        inputs, outputs = (
            [f"a{n}" for n in range(len(kernel.inputs))],
            [f"o{n}" for n in range(len(kernel.outputs))],
        )
        lines = [f"def run_{kernel.name}({', '.join((*inputs, *outputs))}):  # {kernel.summary}"]
        for n, (name, buffer) in enumerate(
            zip((*inputs, *outputs), (*kernel.inputs, *kernel.outputs), strict=True)
        ):
            lines.append(f"    m{n} = {name}.as_strided(({buffer.last + 1},), (1,))")
        for n, var in enumerate(variables):
            shape = ", ".join("-1" if at == n else "1" for at in range(len(variables)))
            lines.append(
                f"    i{n} = torch.arange({var.size}, device={(outputs + inputs)[0]}.device).view({shape})"
            )
        for instr in kernel.instrs:
            lines.append(f"    v{instr.id} = {self._value(instr, names, reduced)}")
        for store in kernel.stores:
            offset = _offset(store.offset, names)
            lines.append(
                f"    at, value = torch.broadcast_tensors(torch.as_tensor({offset}), torch.as_tensor(v{store.value}))"
            )
            lines.append(
                f"    m{len(inputs) + store.buffer}[at] = value.to(m{len(inputs) + store.buffer}.dtype)"
            )
        return "\n".join(lines) + "\n"

    def _value(self, instr: Instr, names: Mapping[Var, str], reduced: tuple[int, ...]) -> str:
        if instr.op == "load":
            text = f"m{instr.buffer}[{_offset(instr.offset, names)}].to(torch.{instr.type})"
            return self._bounded(text, instr, names)
        operands = [_operand(a, instr.compute) for a in instr.args]
        if instr.op.startswith("reduce_") and instr.op[7:] in REDUCTIONS:
            return REDUCTIONS[instr.op[7:]].format(operands[0], reduced)
        if instr.op in CALLS:
            text = f"torch.{instr.op}({operands[0]})"
        elif instr.op in FORMS:
            text = FORMS[instr.op].format(*operands)
        elif instr.op.startswith("cast_"):
            text = f"{operands[0]}.to(torch.{instr.op[5:]})"
        else:
            raise CannotCompose(f"the PyTorch back end has no `{instr.op}`")
        return f"({text}).to(torch.{instr.type})"

    def _bounded(self, text: str, instr: Instr, names: Mapping[Var, str]) -> str:
        if instr.bounds:
            raise CannotCompose("the PyTorch back end reads no padded places")
        return text

    def launch(
        self, kernel: Kernel, schedule: Schedule, inputs: Sequence[str], outputs: Sequence[str]
    ) -> list[str]:
        return [f"run_{kernel.name}({', '.join((*inputs, *outputs))})"]

    def module(self, every: KernelSet) -> ModuleText:
        texts = [self.render(kernel, every.schedules[kernel.name]) for kernel in every.kernels]
        return ModuleText("\n\n".join([PROD, *texts]))


PROD = """\
def dvk_prod(x, dims):
    for dim in dims:
        x = x.prod(dim, True)
    return x
"""


def _offset(offset: Affine, names: Mapping[Var, str]) -> str:
    return " + ".join([*(f"{c} * {names[v]}" for v, c in offset.terms), str(offset.const)])


def _operand(argument: Ref | bool | int | float, kind: str) -> str:
    if isinstance(argument, Ref):
        return f"torch.as_tensor(v{argument.id}).to(torch.{kind})"
    if isinstance(argument, float) and not math.isfinite(argument):
        return f"torch.tensor(float('{argument}'), dtype=torch.{kind})"
    return f"torch.tensor({argument}, dtype=torch.{kind})"
