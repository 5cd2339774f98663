"""Online softmax: the maximum of a row and the sum of exp(x − maximum) in one pass.

Every lane keeps its own maximum and a sum relative to it; a larger element rescales the sum. Saves
one reading of the row. Exact up to rounding; the sum of a row of −inf alone is 0 where two passes
would make it NaN, and softmax of such a row is NaN either way.
"""

from __future__ import annotations

from dvk.composer.kernel import Instr, Kernel, Ref


def softmax_pair(kernel: Kernel) -> tuple[Instr, Instr] | None:
    """The `reduce_max` and the `reduce_sum` over exp(x − max) of the same x, if the kernel has them."""
    for total in kernel.instrs:
        if total.op != "reduce_sum" or total.type != "float32":
            continue
        power = _operand(kernel, total)
        shifted = _operand(kernel, power) if power is not None and power.op == "exp" else None
        if shifted is None or shifted.op != "sub" or len(shifted.args) < 2:
            continue
        x, peak = shifted.args
        if isinstance(x, Ref) and isinstance(peak, Ref):
            top = kernel.instrs[peak.id]
            if top.op == "reduce_max" and top.args == (x,) and top.type == kernel.instrs[x.id].type == "float32":
                return top, total
    return None


def _operand(kernel: Kernel, instr: Instr) -> Instr | None:
    first = instr.args[0]
    return kernel.instrs[first.id] if isinstance(first, Ref) else None


def step(top: int, total: int, x: str, mask: str) -> list[str]:
    """Lines that take one more tile `x` into the accumulators of instructions `top` and `total`."""
    masked = f'tl.where({mask}, {x}, float("-inf"))' if mask else x
    return [
        f"x{top} = {masked}",
        f"peak = tl.maximum(acc{top}, x{top}, propagate_nan=tl.PropagateNan.ALL)",
        # A lane that has seen nothing but -inf would compute -inf - (-inf).
        'shift = tl.where(peak == float("-inf"), 0.0, peak)',
        f"acc{total} = acc{total} * tl.exp(acc{top} - shift) + tl.exp(x{top} - shift)",
        f"acc{top} = peak",
    ]


def rescaled(top: int, total: str, tops: str) -> str:
    """Partial sums `total`, relative to partial maxima `tops`, made relative to the row's maximum."""
    return f'{total} * tl.exp({tops} - tl.where(v{top} == float("-inf"), 0.0, v{top}))'
