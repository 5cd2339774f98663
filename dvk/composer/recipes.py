"""Graph-level moves by name. A recipe is exact, that is, it holds for every input, unless it is marked as valid for finite values alone
(`exact`).

Each entry names a move that a plan may contain. Rewrites change the captured graph; the others steer fusion (`fuse_*`), the host
(`inplace_epilogue`, `cuda_graph`) or the choice of schedule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dvk.composer.capture.captured import CapturedGraph
from dvk.composer.codegen.base import codegen
from dvk.composer.lowering import common_loops
from dvk.composer.lowering.dispatch import BLOCK_PRODUCTS
from dvk.composer.occasion import Occasion
from dvk.composer.recipe import Recipe, family, same_everywhere
from dvk.composer.rewrites import (
    attention,
    batch_norm,
    batch_norm_training,
    cells,
    chunked_steps,
    collapse,
    convolution_bias,
    cudnn,
    dead,
    distances,
    experts,
    foreach,
    layout,
    nucleus,
    operator_parts,
    packed_weights,
    packing,
    repeated,
    scale,
    sequences,
    unrolled,
)
from dvk.records import Graph

COLUMN_SUMS = "column_sums"
OWN_ATTENTION = "own_attention"


RECIPES: dict[str, Recipe] = {
    r.name: r
    for r in (
        Recipe(
            "lists_apart",
            "an operator over at most 32 tensors at once (`torch._foreach_…`), as optimizers use them",
            same_everywhere(foreach.rewrite),
            decomposes=True,
        ),
        Recipe(
            "recurrent_cells",
            "RNNCell, GRUCell or LSTMCell, or its functional form, of floating-point values of one type",
            same_everywhere(cells.rewrite),
            decomposes=True,
        ),
        Recipe(
            "recurrent_sequences",
            "RNN, GRU or LSTM over sequences, in float32 or float64, without projections or active dropout",
            same_everywhere(sequences.rewrite),
            devices=("cpu",),
            decomposes=True,
        ),
        Recipe(
            "chunked_steps",
            "a loop over at least 128 time steps: a state of products k·v, decayed by one number a step, times q",
            same_everywhere(chunked_steps.rewrite),
            devices=("cuda",),
        ),
        Recipe(
            experts.RECIPE,
            "a loop over the experts that `topk` chose: rows by `where`, linears and elementwise operators, `index_add_`",
            experts.rewrite,
            devices=("cuda",),
            decomposes=True,
        ),
        Recipe(
            "operator_parts",
            "an operator without a rule, which PyTorch decomposes into ones with rules",
            operator_parts.rewrite,
            decomposes=True,
        ),
        Recipe(
            "dead_code",
            "an operator returns its operand unchanged, or its result is not read",
            same_everywhere(dead.rewrite),
        ),
        Recipe(
            "common_subexpressions",
            "an operator repeats another on the same operands; no random numbers, nothing written in place",
            same_everywhere(repeated.rewrite),
        ),
        Recipe(
            "nucleus",
            "a line is sorted, its weights are added up and compared with a limit, and what follows is scattered back",
            same_everywhere(nucleus.rewrite),
        ),
        Recipe(
            "fold_batch_norm",
            "a batch norm in eval mode reads a convolution or linear that nothing else reads; not in float16",
            same_everywhere(batch_norm.rewrite),
        ),
        Recipe(
            "fold_batch_norm_finite",
            "the same in float16, if the layer's result is finite",
            same_everywhere(batch_norm.rewrite_finite),
            exact=False,
        ),
        Recipe(
            "collapse_linear_reduction",
            "a linear's output is only summed or averaged over its output features; not in float16",
            same_everywhere(collapse.rewrite),
        ),
        Recipe(
            "collapse_linear_reduction_finite",
            "the same in float16, if the linear's output is finite",
            same_everywhere(collapse.rewrite_finite),
            exact=False,
        ),
        Recipe(
            "pack_linears",
            "linears of one input, with weights of one type",
            same_everywhere(packing.rewrite),
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
            "distances",
            "Euclidean distances of all pairs, of more than 25 rows, in float32 or float64",
            same_everywhere(distances.rewrite),
            decomposes=True,
        ),
        Recipe(
            "fold_scale",
            "a convolution or linear in float32 or float64 is only multiplied or divided by numbers",
            same_everywhere(scale.rewrite),
        ),
        Recipe(
            "batch_norm_training",
            "a batch norm by the batch's statistics; the running ones are written as before",
            same_everywhere(batch_norm_training.rewrite),
            decomposes=True,
        ),
        Recipe(
            "convolution_bias",
            "a library convolution with a bias, which PyTorch adds in a kernel after it",
            same_everywhere(convolution_bias.rewrite),
            devices=("cuda",),
            after=("fold_batch_norm", "fold_batch_norm_finite"),
        ),
        Recipe(
            "unroll_reductions",
            "a reduction over at most eight elements of a computed value, across memory or reduced again",
            same_everywhere(unrolled.rewrite),
            devices=("cuda",),
        ),
        Recipe(
            "channels_last",
            "a convolution, in one dimension on a GPU alone; the layout changes, the values do not",
            layout.rewrite,
        ),
        Recipe(
            "fuse_pointwise", "elementwise operators on broadcast-compatible shapes", kind="fusion"
        ),
        Recipe(
            "fuse_epilogue",
            "elementwise operators after a matrix product or convolution",
            kind="fusion",
            needs=Occasion.has_epilogue,
        ),
        Recipe(
            "fuse_rowwise",
            "reductions over one set of dimensions and the elementwise work around them",
            kind="fusion",
            needs=Occasion.reduces,
        ),
        Recipe(
            common_loops.RECIPE,
            "sums of values of nearly one shape that read a tensor in common, and whose results meet",
            devices=("cuda",),
            kind="fusion",
            needs=lambda occasion: bool(common_loops.common_shapes(occasion.graph)),
        ),
        family(
            "own_windows",
            "pooling whose windows are alike, or constant padding; values alone, not positions",
        ),
        family(
            "own_arg_reductions",
            "positions of maxima or minima along one dimension, of values of at most 32 bits",
        ),
        family(
            "own_selections",
            "one value of a sorted line, of at most 32 bits: the threshold of a top-k filter, `kthvalue`, an element of `sort`",
        ),
        family(
            "own_scans",
            "cumulative sums, products or extremes along one dimension, and adjacent flips",
        ),
        family(
            "own_gathers",
            "reads at computed places: embedding, gather, indices, resampling, rolls, mirrored padding",
        ),
        family(
            "own_scatters",
            "sums of elements at computed places: index_add, scatter_add, scatter_reduce, index_put; the order of a sum is not fixed",
            devices=("cuda",),
        ),
        family(
            "own_moves",
            "elements put elsewhere: concatenation, repeats, shuffled pixels or channels, patches",
        ),
        family(
            "own_matmul",
            "a matrix product of floating-point values: tiles, split sums or skinny, with its neighbours",
        ),
        Recipe(
            OWN_ATTENTION,
            "softmax of a matrix product with what follows it, times a matrix, with own_matmul: the scores stay in registers",
            devices=("cuda",),
            kind="fusion",
            needs=lambda occasion: (
                occasion.attends() and bool({"own_matmul", OWN_ATTENTION} & occasion.owned)
            ),
        ),
        family(
            "own_narrow",
            "values of 8-bit floating-point types are converted, read or written, with their neighbours",
            devices=("cuda",),
        ),
        family(
            "own_narrow_matmul",
            "a matrix product of int8 or 8-bit floating-point codes, scaled by tensors, rows or columns",
            devices=("cuda",),
        ),
        Recipe(
            BLOCK_PRODUCTS,
            "a matrix product of 8-bit floating-point codes with a scale for each block of 128, 64 or 32 along the sum, and of rows",
            devices=("cuda",),
            kind="fusion",
            needs=Occasion.scales_blocks,
        ),
        family(
            "own_depthwise", "a convolution with one input channel a group, with its neighbours"
        ),
        family(
            "own_pointwise",
            "a convolution over one place with stride 1 and one group: a matrix product of channels",
        ),
        family(
            "own_few_channels",
            "a convolution with at most four input channels a group, with its neighbours",
        ),
        family(
            "own_convolution",
            "a convolution with 5 to 32 input channels a group: a matrix product of windows read in place, with what follows it",
            devices=("cuda",),
        ),
        family(
            "own_transposed",
            "a transposed convolution, its window a multiple of the stride, padding in half strides, stride or dilation, "
            "with its neighbours",
        ),
        family(
            "own_transposed_finite",
            "the same of any window, for finite values alone: an infinity times a padded weight is NaN",
            exact=False,
        ),
        Recipe(
            "inplace_epilogue",
            "a library call returned a fresh buffer without aliases",
            kind="host",
            needs=Occasion.has_epilogue,
        ),
        Recipe(
            "huge_pages",
            "a kernel writes a fresh result of 32 MiB or more, whose pages the system has yet to give",
            kind="host",
            devices=("cpu",),
            needs=Occasion.writes_large,
        ),
        Recipe(
            cudnn.RECIPE,
            "a convolution of a batch that stays with the library",
            kind="host",
            devices=("cuda",),
            needs=Occasion.calls_convolution,
        ),
        Recipe(
            packed_weights.RECIPE,
            "a convolution in channels-last memory or a large linear, in float32, stays with the library and has weights of the module",
            kind="host",
            devices=("cpu",),
            needs=Occasion.packs_weights,
        ),
        Recipe(
            "cuda_graph",
            "no random numbers, no writes into arguments: every call runs the same kernels",
            kind="host",
            devices=("cuda",),
            needs=Occasion.is_static,
        ),
        Recipe("vectorize", "always", kind="schedule"),
        Recipe(
            "persistent_row",
            "a row fits in registers",
            kind="schedule",
            devices=("cuda",),
            needs=Occasion.reduces,
        ),
        Recipe(
            "looped_row",
            "a row is read in blocks, once a pass",
            kind="schedule",
            needs=Occasion.reduces,
        ),
        Recipe(
            "online_softmax",
            "maximum and sum of one row",
            kind="schedule",
            devices=("cuda",),
            needs=Occasion.normalises_exponents,
        ),
        Recipe("split_reduction", "few long rows", kind="schedule", needs=Occasion.reduces),
        Recipe(
            COLUMN_SUMS,
            "the backward of a training step sums over rows what a kernel computes row by row",
            kind="fusion",
            needs=lambda _: False,  # of training steps alone: see `applicable_to`
        ),
    )
}
OWN_FAMILIES = tuple(name for name in RECIPES if name.startswith("own_"))
"""Kernel families that replace calls which torch computes well itself: measurement decides whether they pay."""
IN_TRAINING = ("dead_code", "common_subexpressions")
"""Rewrites that hold for the programs of a training step, too."""


def applicable(
    graph: Graph, device: str, backend: str, *, but: Collection[str] = (), inexact: bool = False
) -> list[str]:
    """Recipes that would change something here; rewrites are checked by trying them.

    Args:
        inexact: include those that are exact for finite values alone.
        but: recipes to skip.
    """
    writer = codegen(backend)
    wanted = [
        recipe
        for recipe in RECIPES.values()
        if recipe.name not in but and recipe.name not in writer.excluded
    ]
    apart = rewrite(graph, tuple(recipe.name for recipe in wanted if recipe.decomposes), device)
    occasion = Occasion(graph, apart, device, writer.has_families)
    found: list[str] = []
    for recipe in wanted:
        if (recipe.exact or inexact) and device in recipe.devices:
            before = tuple(name for name in recipe.after if name in found)
            if recipe.applies(occasion) or (before and _applies_after(recipe, before, occasion)):
                found.append(recipe.name)
    return found


def _applies_after(recipe: Recipe, before: tuple[str, ...], occasion: Occasion) -> bool:
    """A recipe applies to what others leave: a folded batch norm, for one, leaves a bias."""
    graph = rewrite(occasion.graph, before, occasion.device)
    return recipe.rewrite is not None and recipe.rewrite(graph, occasion.device) is not None


def applicable_to(
    captured: CapturedGraph, device: str, backend: str, *, inexact: bool = False
) -> list[str]:
    """As `applicable`, for what a drop-in of a capture runs: its graph, or both programs of a training step.

    Weights change between two training steps: nothing is derived from them, and no call is replayed with what it was recorded with.
    """
    if (training := captured.training) is None:
        return applicable(captured.graph, device, backend, inexact=inexact)
    but = [
        recipe.name
        for recipe in RECIPES.values()
        if recipe.name in ("cuda_graph", packed_weights.RECIPE)
        or not recipe.exact
        or (recipe.rewrite is not None and recipe.name not in IN_TRAINING)
    ]
    names = {
        name
        for graph in (training.forward, training.backward)
        for name in applicable(graph, device, backend, but=but)
    }
    if "fuse_rowwise" in names and COLUMN_SUMS not in codegen(backend).excluded:
        names.add(COLUMN_SUMS)
    return [name for name in RECIPES if name in names]


def inexact(names: Iterable[str]) -> list[str]:
    """Those of some recipes that are exact for finite values alone."""
    return [name for name in names if name in RECIPES and not RECIPES[name].exact]


def rewrite(graph: Graph, names: tuple[str, ...], device: str) -> Graph:
    """Apply the graph recipes among `names` in the table's order."""
    for recipe in RECIPES.values():
        if recipe.name in names and recipe.rewrite is not None and device in recipe.devices:
            graph = recipe.rewrite(graph, device) or graph
    return graph
