"""Classes of kernels that a schedule treats alike, and groups of equal kernels.

A class holds the facts that decide between schedules: the kind of work, the widest type, how many large tensors are read, whether reading
runs across memory, and the sizes to the nearest power of two. Operators are not in it: a pointwise kernel's arithmetic hardly
matters compared with its reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dvk.composer.codegen.analysis.work import does
from dvk.composer.ir.conv_form import direct_form
from dvk.composer.ir.loops import READS, Kernel
from dvk.composer.ir.matmul_form import MatmulForm, form_of
from dvk.composer.ir.nodes import BYTES

MANY = 4
"""Maximal count of large tensors read in a class name; more are treated alike."""


def class_of(kernel: Kernel) -> str:
    """As text, for people too: `row softmax float32, 1 read, 2^13 rows of 2^10`."""
    form = form_of(kernel) if kernel.family == "product" else None
    if form is not None:
        return _product(kernel, form)
    largest = max((b.numel for b in kernel.inputs), default=0)
    reads = min(sum(4 * b.numel >= largest for b in kernel.inputs), MANY)
    widest = max(
        (b.dtype for b in (*kernel.inputs, *kernel.outputs)),
        key=lambda dtype: BYTES[dtype],
        default="none",
    )
    crossing = ", across" if kernel.family == "pointwise" and _crosses(kernel) else ""
    kind = kernel.family if kernel.family == "pointwise" else f"{kernel.family} {does(kernel)}"
    length = f" of 2^{round(math.log2(max(kernel.row_length, 1)))}" if kernel.reduced else ""
    return f"{kind} {widest}, {reads} read{crossing}, 2^{round(math.log2(max(kernel.num_rows, 1)))} rows{length}"


def _product(kernel: Kernel, form: MatmulForm) -> str:
    """`product bfloat16, 2^12 × 2^12 of 2^10`: rows, columns and k decide, and which of an operand's dimensions memory walks first."""
    batch, rows, columns = (round(math.log2(max(size, 1))) for size in form.sizes)
    k = kernel.reduced[-1]
    lies = "".join(
        "k" if i.op == "load" and abs(i.offset.coef(k)) == 1 else "-"
        for i in (form.terms[0].left, form.terms[0].right)
    )
    many = (
        f"2^{batch} of " if batch else ""
    ) + f"2^{rows} × 2^{columns} of 2^{round(math.log2(kernel.row_length))}"
    terms = f", {len(form.terms)} at once" if len(form.terms) > 1 else ""
    terms += f", scaled by {form.block}" if form.block else ""
    return f"{does(kernel)} {'tf32' if form.tf32 else form.dtype}, {lies}, {many}{terms}"


def _crosses(kernel: Kernel) -> bool:
    """Whether two accesses walk memory by different variables."""
    offsets = [i.offset for i in kernel.instrs if i.op in READS] + [s.offset for s in kernel.stores]
    return len({min(o.terms, key=lambda term: abs(term[1]))[0] for o in offsets if o.terms}) > 1


def group_equal_kernels(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Groups of kernels that do the same on the same sizes and types; in the order of their first."""
    result: dict[object, list[Kernel]] = {}
    for kernel in kernels:
        result.setdefault(work_of(kernel), []).append(kernel)
    return list(result.values())


def work_of(kernel: Kernel) -> object:
    """Key of kernels that do the same on the same sizes and types: one schedule suits all of them."""
    sizes = tuple(v.size for v in (*kernel.rows, *kernel.reduced))
    does_ = tuple((i.op, i.type, i.compute) for i in kernel.instrs)
    return class_of(kernel), sizes, does_, _walks(kernel)


def _walks(kernel: Kernel) -> object:
    """Memory layout of a convolution's windows: some layouts and strides have separate schedules."""
    form = direct_form(kernel)
    lane = form.lane if form is not None else None
    return lane and (
        lane.stride,
        lane.dilation,
        lane.places,
        form.band is not None,  # type: ignore[union-attr]
        form.outputs is not None,  # type: ignore[union-attr]
    )
