"""Graph-level moves by name. A recipe is exact, that is, it holds for every input, unless it is marked as valid for finite values alone
(`exact`).

Each entry names a move that a plan may contain. Rewrites change the captured graph; the others steer fusion (`fuse_*`), the host
(`inplace_epilogue`, `cuda_graph`) or the choice of schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from dvk import aten
from dvk.composer.codegen.base import codegen
from dvk.composer.ir.effects import draws, is_step, is_view, shared, written
from dvk.composer.ir.nodes import View
from dvk.composer.lowering import CODEGEN_RULES, RULES, lower
from dvk.composer.rewrites import (
    attention,
    batch_norm,
    batch_norm_training,
    cells,
    collapse,
    convolution_bias,
    cudnn,
    dead,
    huge_pages,
    layout,
    packing,
    repeated,
    scale,
    sequences,
)
from dvk.records import Graph, Node

Rewrite = Callable[[Graph, str], "Graph | None"]
"""The graph after a move on a device, or None if it does not apply."""


def _all(rewrite: Callable[[Graph], Graph | None]) -> Rewrite:
    """A move that is the same on every device."""
    return lambda graph, device: rewrite(graph)


@dataclass(frozen=True)
class Recipe:
    """One named move."""

    name: str
    condition: str
    """Conditions under which it is exact and applies, in words."""
    rewrite: Rewrite | None = None
    """The graph after the move, or None if it does not apply."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    exact: bool = True
    """Exact for every input; otherwise for finite values alone, and off by default."""
    kind: str = "graph"
    """`graph` (rewrites), `fusion`, `host` or `schedule`."""


RECIPES: dict[str, Recipe] = {
    r.name: r
    for r in (
        Recipe(
            "recurrent_cells",
            "RNNCell, GRUCell or LSTMCell, or its functional form, of floating-point values of one type",
            _all(cells.rewrite),
        ),
        Recipe(
            "recurrent_sequences",
            "RNN, GRU or LSTM over sequences, in float32 or float64, without projections or active dropout",
            _all(sequences.rewrite),
            devices=("cpu",),
        ),
        Recipe(
            "dead_code",
            "an operator returns its operand unchanged, or its result is not read",
            _all(dead.rewrite),
        ),
        Recipe(
            "common_subexpressions",
            "an operator repeats another on the same operands; no random numbers, nothing written in place",
            _all(repeated.rewrite),
        ),
        Recipe(
            "fold_batch_norm",
            "a batch norm in eval mode reads a convolution or linear that nothing else reads; not in float16",
            _all(batch_norm.rewrite),
        ),
        Recipe(
            "fold_batch_norm_finite",
            "the same in float16, if the layer's result is finite",
            _all(batch_norm.rewrite_finite),
            exact=False,
        ),
        Recipe(
            "collapse_linear_reduction",
            "a linear's output is only summed or averaged over its output features; not in float16",
            _all(collapse.rewrite),
        ),
        Recipe(
            "collapse_linear_reduction_finite",
            "the same in float16, if the linear's output is finite",
            _all(collapse.rewrite_finite),
            exact=False,
        ),
        Recipe(
            "pack_linears", "linears of one input, with weights of one type", _all(packing.rewrite)
        ),
        Recipe(
            "attention",
            "softmax of scaled and masked q·kᵀ, times v; scores and weights have no other reader",
            attention.rewrite,
        ),
        Recipe(
            "attention_finite",
            "as attention, in float16 or under masks that replace scores, of finite scores alone: others would show",
            attention.rewrite_finite,
            devices=("cuda",),
            exact=False,
        ),
        Recipe(
            "fold_scale",
            "a convolution or linear in float32 or float64 is only multiplied or divided by numbers",
            _all(scale.rewrite),
        ),
        Recipe(
            "batch_norm_training",
            "a batch norm by the batch's statistics; the running ones are written as before",
            _all(batch_norm_training.rewrite),
            devices=("cuda",),
        ),
        Recipe(
            "convolution_bias",
            "a library convolution with a bias, which PyTorch adds in a kernel after it",
            _all(convolution_bias.rewrite),
            devices=("cuda",),
        ),
        Recipe(
            "channels_last",
            "a 2-D or 3-D convolution; the layout changes, the values do not",
            _all(layout.rewrite),
        ),
        Recipe(
            "fuse_pointwise", "elementwise operators on broadcast-compatible shapes", kind="fusion"
        ),
        Recipe(
            "fuse_epilogue",
            "elementwise operators after a matrix product or convolution",
            kind="fusion",
        ),
        Recipe(
            "fuse_rowwise",
            "reductions over one set of dimensions and the elementwise work around them",
            kind="fusion",
        ),
        Recipe(
            "own_windows",
            "pooling whose windows are alike, or constant padding; values alone, not positions",
            kind="fusion",
        ),
        Recipe(
            "own_arg_reductions",
            "positions of maxima or minima along one dimension, of values of at most 32 bits",
            kind="fusion",
        ),
        Recipe(
            "own_scans",
            "cumulative sums, products or extremes along one dimension, and adjacent flips",
            kind="fusion",
        ),
        Recipe(
            "own_gathers",
            "reads at computed places: embedding, gather, indices, resampling, rolls, mirrored padding",
            kind="fusion",
        ),
        Recipe(
            "own_moves",
            "elements put elsewhere: concatenation, repeats, shuffled pixels or channels, patches",
            kind="fusion",
        ),
        Recipe(
            "own_matmul",
            "a matrix product of floating-point values: tiles, split sums or skinny, with its neighbours",
            kind="fusion",
        ),
        Recipe(
            "own_depthwise",
            "a convolution with one input channel a group, with its neighbours",
            kind="fusion",
        ),
        Recipe(
            "own_pointwise",
            "a convolution over one place with stride 1 and one group: a matrix product of channels",
            kind="fusion",
        ),
        Recipe(
            "own_few_channels",
            "a convolution with at most four input channels a group, with its neighbours",
            kind="fusion",
        ),
        Recipe(
            "own_transposed",
            "a transposed convolution, its window a multiple of the stride, padding in half strides, stride or dilation, "
            "with its neighbours",
            kind="fusion",
        ),
        Recipe(
            "own_transposed_finite",
            "the same of any window, for finite values alone: an infinity times a padded weight is NaN",
            kind="fusion",
            exact=False,
        ),
        Recipe(
            "inplace_epilogue",
            "a library call returned a fresh buffer without aliases",
            kind="host",
        ),
        Recipe(
            "huge_pages",
            "a kernel writes a fresh result of 32 MiB or more, whose pages the system has yet to give",
            kind="host",
            devices=("cpu",),
        ),
        Recipe(
            cudnn.RECIPE,
            "a convolution of a batch that stays with the library",
            kind="host",
            devices=("cuda",),
        ),
        Recipe(
            "cuda_graph",
            "no random numbers, no writes into arguments: every call runs the same kernels",
            kind="host",
            devices=("cuda",),
        ),
        Recipe("vectorize", "always", kind="schedule"),
        Recipe("persistent_row", "a row fits in registers", kind="schedule", devices=("cuda",)),
        Recipe("looped_row", "a row is read in blocks, once a pass", kind="schedule"),
        Recipe("online_softmax", "maximum and sum of one row", kind="schedule", devices=("cuda",)),
        Recipe("split_reduction", "few long rows", kind="schedule"),
    )
}
OWN_FAMILIES = tuple(name for name in RECIPES if name.startswith("own_"))
"""Kernel families that replace calls which torch computes well itself: measurement decides whether they pay."""
NOT_IN_DSL = (
    *OWN_FAMILIES,
    "attention",
    "attention_finite",
    "batch_norm_training",
    "collapse_linear_reduction_finite",
    "common_subexpressions",
    "convolution_bias",
    cudnn.RECIPE,
    "fold_batch_norm_finite",
    "fold_scale",
    "huge_pages",
    "pack_linears",
    "recurrent_cells",
    "recurrent_sequences",
)
"""Recipes that the compact dialect cannot express, except as listed by back end."""
DSL_BY_BACKEND = {"triton": ("own_matmul",)}
"""Back end → recipes that its dialect can express after all; see `not_in_dsl`."""
DECOMPOSING = ("recurrent_cells", "recurrent_sequences", "batch_norm_training")
"""Recipes that decompose operators, so that other recipes apply to the parts."""


def applicable(
    graph: Graph, device: str, backend: str, *, but: Collection[str] = (), inexact: bool = False
) -> list[str]:
    """Recipes that would change something here; rewrites are checked by trying them.

    Args:
        inexact: include those that are exact for finite values alone.
        but: recipes to skip.
    """
    writer = codegen(backend)
    apart = rewrite(
        graph,
        tuple(name for name in DECOMPOSING if name not in but and name not in writer.excluded),
        device,
    )
    operators = [n.op.split(".")[1] for n in apart.nodes if n.op.startswith("aten.")]
    fused = [o for o in operators if o in RULES]
    result = []
    wanted = [
        recipe
        for recipe in RECIPES.values()
        if recipe.name not in but and (recipe.exact or inexact)
    ]
    owned = (
        _owned(apart, device)
        if writer.has_families and any(recipe.name in OWN_FAMILIES for recipe in wanted)
        else ()
    )
    for recipe in wanted:
        if device not in recipe.devices or recipe.name in writer.excluded:
            continue
        if recipe.name in OWN_FAMILIES:
            if recipe.name in owned:
                result.append(recipe.name)
            continue
        if recipe.rewrite is not None:
            if recipe.rewrite(graph if recipe.name in DECOMPOSING else apart, device) is not None:
                result.append(recipe.name)
        elif recipe.name == "fuse_rowwise" or recipe.name in (
            "persistent_row",
            "looped_row",
            "split_reduction",
        ):
            if any(o in aten.REDUCING for o in operators):
                result.append(recipe.name)
        elif recipe.name == "online_softmax":
            if any("softmax" in o or "cross_entropy" in o or o == "logsumexp" for o in operators):
                result.append(recipe.name)
        elif recipe.name in ("fuse_epilogue", "inplace_epilogue"):
            if any(o in aten.LIBRARY for o in operators) and fused:
                result.append(recipe.name)
        elif recipe.name == "huge_pages":
            if fused and any(
                huge_pages.is_large(node.shape, node.dtype)
                for node in apart.nodes
                if node.op.startswith("aten.")
            ):
                result.append(recipe.name)
        elif recipe.name == cudnn.RECIPE:
            if any(cudnn.measured(node, str) for node in apart.nodes):
                result.append(recipe.name)
        elif recipe.name == "cuda_graph":
            if is_static(apart):
                result.append(recipe.name)
        elif fused:
            result.append(recipe.name)
    return result


def inexact(names: Iterable[str]) -> list[str]:
    """Those of some recipes that are exact for finite values alone."""
    return [name for name in names if name in RECIPES and not RECIPES[name].exact]


def not_in_dsl(backend: str) -> tuple[str, ...]:
    """Recipes that the compact dialect cannot express."""
    return tuple(name for name in NOT_IN_DSL if name not in DSL_BY_BACKEND.get(backend, ()))


def _owned(graph: Graph, device: str) -> set[str]:
    """Recipes of kernel families that would turn some operator here into a kernel, found by trying."""
    of = {
        node.name: CODEGEN_RULES[operator]
        for node in graph.nodes
        if node.op.startswith("aten.") and (operator := node.op.split(".")[1]) in CODEGEN_RULES
    }
    if not of:
        return set()
    without = lower(graph, may_own=lambda recipe: False, device=device).values
    result = set()
    for recipe in {recipe for rules in of.values() for recipe in rules}:
        alone = lower(graph, may_own=recipe.__eq__, device=device).values
        if any(
            recipe in rules and _left(without[name]) and not _left(alone[name])
            for name, rules in of.items()
        ):
            result.add(recipe)
    return result


def _left(value: object) -> bool:
    """The value is the result of a call that stays with PyTorch."""
    return isinstance(value, View) and value.base.kind == "extern" and not value.steps


def is_static(graph: Graph) -> bool:
    """Every call runs the same kernels on the same kinds of memory: no random numbers, no writes into arguments.

    Weights and buffers that are written keep their places, so that a replay writes them as a call does.
    """
    if any(is_step(n) or (n.shape is None and n.dtype is not None) for n in graph.nodes):
        return False
    producers = {node.name: node for node in graph.nodes}
    reached = [name for node in graph.nodes for name in written(node)]
    seen = set(reached)
    while reached:
        node = producers[reached.pop()]
        if node.op in ("input", "const"):
            return False
        reached += [name for name in shared(node) if name not in seen]
        seen.update(reached)
    return not any(draws(n) for n in graph.nodes)


def rewrite(graph: Graph, names: tuple[str, ...], device: str) -> Graph:
    """Apply the graph recipes among `names` in the table's order."""
    for recipe in RECIPES.values():
        if recipe.name in names and recipe.rewrite is not None and device in recipe.devices:
            graph = recipe.rewrite(graph, device) or graph
    return graph


def allowed(graph: Graph, names: tuple[str, ...]) -> Callable[[Node], bool]:
    """Select the operators that may leave PyTorch under the chosen fusion recipes."""
    behind: set[str] = set()
    for node in graph.nodes:
        if node.op.startswith("aten.") and node.op.split(".")[1] in aten.LIBRARY:
            behind.add(node.name)
        elif any(isinstance(a, dict) and a.get("ref") in behind for a in node.args):
            behind.add(node.name)

    def allow(node: Node) -> bool:
        operator = node.op.split(".")[1] if node.op.startswith("aten.") else node.op
        if is_view(node):
            return True
        if operator in aten.REDUCING:
            return "fuse_rowwise" in names
        return (
            "fuse_pointwise" in names
            or "fuse_rowwise" in names
            or ("fuse_epilogue" in names and node.name in behind)
        )

    return allow
