"""`op.py` of an export: the kernels of a drop-in as an operator of PyTorch, without state."""

from __future__ import annotations

from dvk.pipelines.export import texts
from dvk.pipelines.export.program import StatelessProgram
from dvk.records import Device, TensorSpec


def text(program: StatelessProgram, device: Device, name: str, *, imports: str, space: str) -> str:
    """The file.

    Args:
        program: the kernels.
        device: where they run.
        name: of the operator.
        imports: a line that `space` needs, or empty.
        space: the operator's full name, as an expression.
    """
    parameters = [*program.tensors, *(weight.name for weight in program.weights)]
    passed = ", ".join(
        name if name in program.tensors else repr(program.constants[name])
        for name in program.arguments
    )
    many = f"tuple[{', '.join(['torch.Tensor'] * program.outputs)}]"
    return texts.filled(
        "op.py",
        imports=f"{imports}\n" if imports else "",
        device=repr(device),
        calls="".join(
            f"    ({_row(given)}, {_row(results)}),\n" for given, results in program.calls
        ),
        weights="".join(
            f"    {'None' if weight.layout is None else _layout(*weight.layout)},\n"
            for weight in program.weights
        ),
        qualified=space,
        name=name,
        signature=", ".join(f"{one}: torch.Tensor" for one in parameters),
        returns="torch.Tensor" if program.single else many,
        given=_tuple(program.tensors),
        held=_tuple([weight.name for weight in program.weights]),
        tensors=f"({_tuple(program.tensors)})",
        passed=passed,
        tuple_of=f"[_laid_out(t, one) for t, one in zip({'(made,)' if program.single else 'made'}, results)]",
        unwrapped="made[0]" if program.single else "tuple(made)",
        programs="".join(
            f"    (dropin.dvk_fused._dvk_fits{end}, dropin.dvk_fused._dvk_run{end}),\n"
            for end in ("" if n == 0 else f"_{n + 1}" for n in range(program.number))
        ),
    )


def _tuple(names: tuple[str, ...] | list[str]) -> str:
    return "".join(f"{name}, " for name in names).strip()


def _row(specs: tuple[TensorSpec, ...]) -> str:
    return f"({' '.join(f'{_layout(s.shape, s.strides, s.dtype)},' for s in specs)})"


def _layout(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> str:
    return f"({tuple(shape)!r}, {tuple(strides)!r}, torch.{dtype})"
