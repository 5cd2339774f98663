"""Lines of a program that run a loop over time steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dvk.composer.dropin.dead_memory import empty
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.time_scan import TimeScan


def lines_of(
    made: TimeScan, given: Sequence[str], name: str, run: Callable[[Sequence[str]], str]
) -> list[str]:
    """Lay out the operands, allocate the results as the tuple `name`, and run the kernel.

    Args:
        given: the operands as they are now.
        run: gives the line that runs the kernel on tensors.
    """
    names = [f"{name}_{n}" for n in range(len(given))]
    lines = [
        f"{operand} = dvk_strided({text}, {strides!r}, {shape!r}, torch.{kind})"
        for (operand, text), (shape, strides, kind) in zip(
            zip(names, given, strict=True), made.operands, strict=True
        )
    ]
    results = [empty(r.shape, contiguous_strides(r.shape), r.dtype) for r in made.results]
    lines.append(f"{name} = ({', '.join(results)},)")
    lines.append(run([*names, *(f"{name}[{n}]" for n in range(len(results)))]))
    return [*lines, f"del {', '.join(names)}"] if names else lines
