"""Variants of a task: the same computation under other plans, each described in words.

Tags are short canonical phrases. A plan has `epilogue in place`, `batch norm folded`, `left to torch`, …; each kernel has its name,
algorithm and parameters: `k0: row looped online, block 4096, warps 8`. `facts` lists the conditions of a kernel (family, operators, length
of its rows), on which a note's advice can depend.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dvk import aten
from dvk.composer import dialect, recipes
from dvk.composer.algorithms import algorithms, elements, name_of, numbers, usual
from dvk.composer.capture.export import CapturedGraph
from dvk.composer.codegen.analysis.work import does
from dvk.composer.codegen.triton.matmul_schedule import pays
from dvk.composer.compose import Plan
from dvk.composer.fusion.groups import FusionGroup
from dvk.composer.ir.effects import is_view
from dvk.composer.ir.nodes import FLOATS, View
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.lowering import CODEGEN_RULES, matmul
from dvk.nanolang.listing.symbolic import packet
from dvk.nanolang.text.write import DEVICES, fused, written
from dvk.records import BackendName

PHRASES = {
    "channels_last": "channels last",
    "cuda_graph": "graph replay",
    "fold_batch_norm": "batch norm folded",
    "collapse_linear_reduction": "linear and sum collapsed",
}
"""Recipe → phrase for a plan that has it."""
MULTIPLYING = frozenset(name for name, rules in CODEGEN_RULES.items() if matmul.RECIPE in rules)
"""Operators that generated matmuls may replace."""
MAX_PRODUCTS = 8
"""Maximum kernels with generated matmuls in a plan: each is a text of some thousand characters, and a model reads a few thousand tokens."""
SHORT, MEDIUM = 1024, 16384
"""Maximum lengths of short and of medium rows."""
FEW_ROWS = 256
SMALL, LARGE = 1 << 16, 1 << 22
"""Elements up to which a kernel is small, and from which it is large."""
TRIES = 8
"""Draws per requested variant; a small kernel has fewer different texts."""


@dataclass(frozen=True)
class PlanVariant:
    """One plan and its description in words."""

    plan: Plan
    text: str
    """The text from `write`."""
    tags: tuple[str, ...]
    kernels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kernel → its algorithm, then its parameters."""


def variants(
    captured: CapturedGraph, backend: BackendName, rng: random.Random, count: int
) -> list[PlanVariant]:
    """Up to `count` variants with distinct texts.

    The composer's own comes first; then each other structure and each algorithm of the kernel with most work, as far as `count` permits;
    then random mixtures.
    """
    shapes = structures(captured, backend)
    result: list[PlanVariant] = []
    seen: set[Any] = set()

    def offer(plan: Plan) -> None:
        key = (plan.recipes, frozenset(plan.schedules.items()))
        if key in seen or len(result) >= count:
            return
        variant = described(captured, plan, backend)
        if variant.text not in seen:
            result.append(variant)
        seen.update((key, variant.text))

    offer(full(captured, Plan(shapes[0]), backend))
    kernels = fused(captured, shapes[0], backend).ordered
    first = [Plan(names) for names in shapes[1:]]
    if kernels:
        largest = max(kernels, key=elements)
        for options in list(algorithms(largest, backend).values()):
            first.append(Plan(shapes[0], {largest.name: rng.choice(options)}))
    rng.shuffle(first)
    for plan in first:
        offer(full(captured, plan, backend))
    for _ in range(TRIES * count):
        if len(result) >= count:
            break
        names = rng.choice(shapes[: max(len(shapes) - 1, 1)]) if rng.random() < 0.5 else shapes[0]
        offer(_drawn(captured, names, backend, rng))
    return result


def structures(captured: CapturedGraph, backend: BackendName) -> list[tuple[str, ...]]:
    """Recipe sets worth a variant: all of them first, none (all work left to torch) last."""
    applicable = tuple(
        recipes.applicable(
            captured.graph, DEVICES[backend], backend, but=dialect.not_in_dsl(backend)
        )
    )
    names = tuple(n for n in applicable if recipes.RECIPES[n].kind != "schedule")
    base = tuple(
        n
        for n in names
        if n not in ("cuda_graph", "channels_last", "inplace_epilogue", "own_matmul")
    )
    variants = [base]
    if "inplace_epilogue" in names:
        variants.insert(0, (*base, "inplace_epilogue"))
    if "own_matmul" in names:
        own = (*variants[0], "own_matmul")
        kernels = fused(captured, own, backend).ordered
        if sum(k.family == "product" for k in kernels) <= MAX_PRODUCTS:
            variants.insert(0 if pays((k, usual(k, backend)) for k in kernels) else 1, own)
    variants += [
        (*variants[0], extra) for extra in ("channels_last", "cuda_graph") if extra in names
    ]
    variants += [
        tuple(n for n in variants[0] if n != without)
        for without in ("fold_batch_norm", "collapse_linear_reduction", "fuse_rowwise")
        if without in names
    ]
    variants.append(tuple(n for n in names if n == "dead_code"))
    return list(dict.fromkeys(variants))


def full(captured: CapturedGraph, plan: Plan, backend: BackendName) -> Plan:
    """The plan with a schedule for every kernel."""
    kernels = fused(captured, plan.recipes, backend).ordered
    return Plan(
        plan.recipes, {k.name: plan.schedules.get(k.name) or usual(k, backend) for k in kernels}
    )


def _drawn(
    captured: CapturedGraph, names: tuple[str, ...], backend: BackendName, rng: random.Random
) -> Plan:
    """A plan with a random algorithm for every kernel; equal kernels get the same algorithm."""
    chosen: dict[Any, Schedule] = {}
    schedules: dict[str, Schedule] = {}
    for kernel in fused(captured, names, backend).ordered:
        key = (
            tuple(i.op for i in kernel.instrs),
            tuple(v.size for v in (*kernel.rows, *kernel.reduced)),
        )
        if key not in chosen:
            options = algorithms(kernel, backend)
            chosen[key] = rng.choice(options[rng.choice(list(options))])
        schedules[kernel.name] = chosen[key]
    return Plan(names, schedules)


def described(captured: CapturedGraph, plan: Plan, backend: BackendName) -> PlanVariant:
    """The plan in words."""
    plan = full(captured, plan, backend)
    text, in_place = written(captured, plan, backend)
    kernels = {
        k.name: (name_of(k, plan.schedules[k.name], backend), *numbers(k, plan.schedules[k.name]))
        for k in fused(captured, plan.recipes, backend).ordered
    }
    words = [phrase for name, phrase in PHRASES.items() if name in plan.recipes]
    words += ["epilogue in place"] if in_place else []
    operators = [packet(n) for n in captured.graph.nodes]
    read = {
        packet(b.prim.node)
        for k in fused(captured, plan.recipes, backend).ordered
        for b in k.inputs
        if b.prim.node is not None
    }
    if not kernels:
        words.append("left to torch")
    elif read & aten.LIBRARY and not in_place:
        words.append("epilogue separate")
    if any(k.family == "product" for k in fused(captured, plan.recipes, backend).ordered):
        words.append("own products")
    elif "own_matmul" not in dialect.not_in_dsl(backend) and any(
        operator in MULTIPLYING and node.dtype in FLOATS
        for operator, node in zip(operators, captured.graph.nodes, strict=True)
    ):
        words.append("products left to torch")
    if (
        kernels
        and "fuse_rowwise" not in plan.recipes
        and any(o in aten.REDUCING for o in operators)
    ):
        words.append("reductions left to torch")
    tags = (*words, *(f"{name}: {', '.join(phrases)}" for name, phrases in kernels.items()))
    return PlanVariant(plan, text, tags, kernels)


def facts(captured: CapturedGraph, plan: Plan, backend: BackendName) -> dict[str, dict[str, Any]]:
    """Facts about every kernel of a plan, on which advice may depend.

    Returns:
        Kernel → `family`, `does`, `operators`, `dtype`, `rows`, `length`, `row length`, `row count`, `elements`, `after` (the torch call
        whose result it reads, if any) and `algorithm`.
    """
    composition = fused(captured, plan.recipes, backend)
    plan = full(captured, plan, backend)
    groups = {id(s): s for s in composition.part.schedule if isinstance(s, FusionGroup)}
    result: dict[str, dict[str, Any]] = {}
    for key, kernel in composition.kernels.items():
        members = set(groups[key].members)
        inside = [
            n
            for n in composition.graph.nodes
            if n.op not in ("input", "param", "buffer", "const")
            and not is_view(n)
            and isinstance(v := composition.prims.values.get(n.name), View)
            and v.base in members
        ]
        after = next(
            (
                packet(b.prim.node)
                for b in kernel.inputs
                if b.prim.kind == "extern" and b.prim.node is not None
            ),
            None,
        )
        length, total = kernel.row_length, elements(kernel)
        result[kernel.name] = {
            "family": kernel.family,
            "does": does(kernel),
            "operators": [packet(n) for n in inside],
            "dtype": max((b for b in kernel.inputs), key=lambda b: b.num_bytes).dtype
            if kernel.inputs
            else kernel.outputs[0].dtype,
            "rows": int(kernel.num_rows),
            "length": int(length),
            "row length": "short" if length <= SHORT else "medium" if length <= MEDIUM else "long",
            "row count": "few" if kernel.num_rows < FEW_ROWS else "many",
            "elements": "small" if total <= SMALL else "large" if total >= LARGE else "middling",
            "after": after,
            "algorithm": name_of(kernel, plan.schedules[kernel.name], backend),
        }
    return result
