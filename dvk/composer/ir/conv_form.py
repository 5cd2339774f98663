"""The form of a convolution kernel: the loop variables of its windows, and the values it multiplies.

A window reads the input at stride · output + dilation · place. If the prologue depends on the two only through that sum, the input's
position becomes a separate variable: `staged` rewrites the values over it, so that each is computed once and all windows read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.loops import Instr, Kernel


@dataclass(frozen=True)
class WindowDim:
    """One dimension of the windows: output `var` and place `place` read position stride · var + dilation · place."""

    var: Var
    place: Var | None
    stride: int
    dilation: int

    @property
    def places(self) -> int:
        return self.place.size if self.place is not None else 1

    def reach(self, count: int) -> int:
        """Number of positions that so many neighbouring outputs read, from the first to the last."""
        return (count - 1) * self.stride + (self.places - 1) * self.dilation + 1

    def over(self, part: Affine, position: Var) -> Affine:
        """An index rewritten over positions."""
        unit = part.coef(self.var) // self.stride
        kept = {v: c for v, c in part.terms if v not in (self.var, self.place)}
        return Affine.build({**kept, position: unit}, part.const)


@dataclass(frozen=True)
class ConvForm:
    """Loop variables by their role."""

    reduce: Instr
    x: Instr
    """The factor that is read through windows."""
    weight: Instr
    lane: WindowDim
    """The window along the output's fastest dimension."""
    band: WindowDim | None
    """The window along another dimension."""
    outputs: Var | None
    """Outputs that share the input's values: only the weight varies along it."""
    outer: tuple[Var, ...]
    free: tuple[Var, ...]
    """Summed variables other than both windows' places: input channels, and places of further dimensions."""

    @property
    def num_free(self) -> int:
        return math.prod(v.size for v in self.free)


def direct_form(kernel: Kernel) -> ConvForm | None:
    """The form of a kernel; None if it is not a convolution, or if no window runs along its output's fastest dimension.

    For a transposed convolution that is the fastest dimension of x.
    """
    reduces = [i for i in kernel.instrs if i.op.startswith("reduce_")]
    steps = (
        reduces[0].prim.attrs.get("contracted")
        if len(reduces) == 1 and reduces[0].prim is not None
        else None
    )
    live = [v for v in kernel.rows if v.size > 1]
    if not steps or not live:
        return None
    times = needed(kernel, [a.id for a in reduces[0].args])[-1]  # type: ignore[union-attr]
    x, weight = (kernel.instrs[a.id] for a in times.args)  # type: ignore[union-attr]
    if reduces[0].prim.attrs.get("phased"):  # type: ignore[union-attr]
        # The fastest variables may be phases, which occur only in the weight.
        fastest = next((v for v in reversed(live) if v in x.vars and v not in weight.vars), None)
    else:
        fastest = live[-1]
        x, weight = (x, weight) if fastest in x.vars else (weight, x)
    if fastest is None or fastest not in x.vars or fastest in weight.vars:
        return None
    parts = [
        part
        for instr in needed(kernel, [x.id])
        for part in (instr.offset, *(p for p, _ in instr.bounds))
    ]
    walked = [v for v in live if v in x.vars and v not in weight.vars]
    walks = {v: dim for v in walked if (dim := _walk(v, kernel.reduced, steps, parts)) is not None}
    lane = walks.pop(fastest, WindowDim(fastest, None, 1, 0))
    band = next(
        (walks[v] for v in reversed(walked) if v in walks and walks[v].place is not lane.place),
        None,
    )
    if any(part.coef(lane.var) < 0 for part in parts):
        return None
    used = {lane.var, lane.place, *((band.var, band.place) if band is not None else ())}
    outputs = next((v for v in reversed(live) if v not in x.vars), None)
    outer = tuple(v for v in live if v not in used and v is not outputs)
    return ConvForm(
        reduces[0],
        x,
        weight,
        lane,
        band,
        outputs,
        outer,
        tuple(v for v in kernel.reduced if v.size > 1 and v not in used),
    )


def _walk(
    var: Var, reduced: Iterable[Var], steps: Iterable[tuple[int, int]], parts: list[Affine]
) -> WindowDim | None:
    """The places that belong to an output's variable: in every index both occur in the ratio of a stride and a dilation."""
    for stride, dilation in steps:
        common = math.gcd(stride, dilation)
        stride, dilation = stride // common, dilation // common
        for place in reduced:
            if any(p.coef(place) for p in parts) and all(
                p.coef(var) * dilation == p.coef(place) * stride for p in parts
            ):
                return WindowDim(var, place, stride, dilation)
    return None


def staged(kernel: Kernel, form: ConvForm, at_lane: Var, at_band: Var) -> list[Instr]:
    """The instructions that compute the input's values, in order, over positions `at_lane` and `at_band` instead of outputs and places."""

    def over(part: Affine) -> Affine:
        part = form.lane.over(part, at_lane)
        return form.band.over(part, at_band) if form.band is not None else part

    return [
        replace(
            i, offset=over(i.offset), bounds=tuple((over(part), count) for part, count in i.bounds)
        )
        for i in needed(kernel, [form.x.id])
    ]


def needed(kernel: Kernel, targets: Iterable[int], given: Iterable[int] = ()) -> list[Instr]:
    """Instructions that the targets need, in order, the targets included; `given` are already known."""
    dims: set[int] = set()
    pending, known = list(targets), set(given)
    while pending:
        id_ = pending.pop()
        if id_ not in dims and id_ not in known:
            dims.add(id_)
            pending.extend(
                a.id for a in kernel.instrs[id_].args if not isinstance(a, (bool, int, float))
            )
    return [i for i in kernel.instrs if i.id in dims]
