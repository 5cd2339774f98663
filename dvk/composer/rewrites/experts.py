"""Mixtures of experts written as a loop: each expert computes the tokens that chose it, as one grouped product for all experts.

    for e in range(num_experts):
        token, pick = torch.where(chosen == e)
        out.index_add_(0, token, expert[e](x[token]) * share[token, pick, None])

The pairs of token and pick are sorted by expert into blocks of equal length, a multiple for each expert; the last block of an expert ends
with rows that are not read. Blocks are as many as the worst case needs, so no number waits for the device. A product of all blocks reads
rows of `x` and weights of experts at computed indices (`own_gathers`), and the pairs of a token are added. PyTorch adds them one by one,
rounding to the result's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.rewrites.edit import packet, rebuilt, ref, users
from dvk.composer.rewrites.expert_loop import Loop, Step, find_loops
from dvk.records import Graph, Node

RECIPE = "grouped_experts"
LENGTHS = (128, 64, 32, 16)
"""Rows of a block."""
MAX_BLOCKS = 1 << 16


def rewrite(graph: Graph, device: str) -> Graph | None:
    """The graph with grouped products for loops over experts, or None without any."""
    changed = None
    for loop in find_loops(graph):
        made = _Grouped(graph, loop, device).nodes()
        if made is None:
            continue
        gone: dict[str, list[Node]] = {name: [] for name in loop.inside}
        gone[loop.last.name] = made
        changed = rebuilt(changed or graph, gone, {})
    return changed


def block_length(pairs: int, experts: int) -> int:
    """Rows of a block: about the pairs of an expert, so that few rows are idle."""
    return next((n for n in LENGTHS if pairs * 4 >= experts * n * 3), LENGTHS[-1])


class _Grouped:
    """The nodes that replace one loop."""

    def __init__(self, graph: Graph, loop: Loop, device: str):
        self.nodes_by_name = {node.name: node for node in graph.nodes}
        self.readers = users(graph)
        self.loop, self.device = loop, device
        self.made: list[Node] = []
        tokens, picks = loop.chosen.shape or (0, 0)
        self.picks, self.tokens, self.pairs = picks, tokens, tokens * picks
        self.length = block_length(self.pairs, loop.experts)
        least = min(loop.experts, self.pairs)
        self.blocks = (self.pairs - least) // self.length + least
        self.rows = self.blocks * self.length

    def add(
        self, operator: str, shape: Sequence[int], kind: str, /, *args: Any, **kwargs: Any
    ) -> Any:
        """A new node; returns a reference to it."""
        strides = kwargs.pop("strides", contiguous_strides(tuple(shape)))
        self.made.append(
            Node(
                name=f"{self.loop.last.name}_m{len(self.made)}",
                op=operator if operator == "derived" else f"aten.{operator}",
                args=args,
                kwargs=kwargs,
                shape=tuple(shape),
                dtype=kind,
                strides=strides,
            )
        )
        return {"ref": self.made[-1].name}

    def nodes(self) -> list[Node] | None:
        """The new nodes, the last of which has the loop's name; None if a step has no grouped form."""
        if not self.pairs or self.blocks > MAX_BLOCKS:
            return None
        self._sort()
        values: list[Any] = []
        for number, step in enumerate(self.loop.bodies[0].steps):
            value = self._step(step, values, [body.steps[number] for body in self.loop.bodies])
            if value is None:
                return None
            values.append(value)
        value, width = values[-1]
        if self.loop.last.shape != (self.tokens, width):
            return None
        self._combine(value, width, str(self.loop.bodies[0].steps[-1].node.dtype))
        last = self.made[-1]
        renamed = last.model_copy(
            update={"name": self.loop.last.name, "strides": self.loop.last.strides}
        )
        return [*self.made[:-1], renamed]

    # ------------------------------------------------------------ where each pair goes

    def _ids(self, count: int) -> Any:
        kwargs = {"dtype": {"dtype": "int64"}, "device": {"device": self.device}}
        return self.add("arange.default", (count,), "int64", count, **kwargs)

    def _sort(self) -> None:
        """Declare the slot of each pair, the pair of each slot, and the expert of each block."""
        n, e, length = self.pairs, self.loop.experts, self.length
        whole = "int64"
        flat = self.add("reshape.default", (n,), whole, {"ref": self.loop.chosen.name}, [n])
        flat = self.add("unsqueeze.default", (n, 1), whole, flat, 1)
        is_its = self.add("eq.Tensor", (n, e), "bool", flat, self._ids(e))
        own = self.add("to.dtype", (n, e), whole, is_its, {"dtype": whole})
        upto = self.add("cumsum.default", (n, e), whole, own, 0)
        counts = self.add("select.int", (e,), whole, upto, 0, n - 1, strides=(1,))
        needed = self.add("add.Tensor", (e,), whole, counts, length - 1)
        needed = self.add("floor_divide.default", (e,), whole, needed, length)
        ends = self.add("cumsum.default", (e,), whole, needed, 0)
        starts = self.add("sub.Tensor", (e,), whole, ends, needed)
        starts = self.add("mul.Tensor", (e,), whole, starts, length)
        place = self.add("add.Tensor", (n, e), whole, upto, starts)
        place = self.add("sub.Tensor", (n, e), whole, place, 1)
        place = self.add("mul.Tensor", (n, e), whole, place, own)
        self.slot = self.add("sum.dim_IntList", (n,), whole, place, [1])
        before = self.add("unsqueeze.default", (self.blocks, 1), whole, self._ids(self.blocks), 1)
        past = self.add("ge.Tensor", (self.blocks, e), "bool", before, ends)
        block = self.add("sum.dim_IntList", (self.blocks,), whole, past, [1])
        self.expert = self.add("clamp_max.default", (self.blocks,), whole, block, e - 1)
        kwargs = {"dtype": {"dtype": whole}, "device": {"device": self.device}}
        idle = self.add("zeros.default", (self.rows,), whole, [self.rows], **kwargs)
        self.pair = self.add("scatter.src", (self.rows,), whole, idle, 0, self.slot, self._ids(n))
        self.token = self.add("floor_divide.default", (self.rows,), whole, self.pair, self.picks)

    # ------------------------------------------------------------ the experts' steps

    def _blocked(self, value: Any, width: int, dtype: str) -> Any:
        shape = (self.blocks, self.length, width)
        return self.add("reshape.default", shape, dtype, value, list(shape)), width

    def _step(self, step: Step, values: list[Any], all_steps: list[Step]) -> Any:
        """A step for all blocks: its value and its width; None if it has no form for blocks."""
        dtype = str(step.node.dtype)
        if step.kind == "rows":
            source = self.nodes_by_name[step.source]
            width, flat = step.width, {"ref": source.name}
            whole = (self.tokens, width)
            if source.shape != whole:
                flat = self.add("reshape.default", whole, dtype, flat, list(whole))
            taken = self.add("index.Tensor", (self.rows, width), dtype, flat, [self.token])
            return self._blocked(taken, width, dtype)
        if step.kind == "picked":
            flat = self.add(
                "reshape.default", (self.pairs,), dtype, {"ref": step.source}, [self.pairs]
            )
            taken = self.add("index.Tensor", (self.rows,), dtype, flat, [self.pair])
            return self._blocked(taken, 1, dtype)
        if step.kind == "old":
            return None, 0
        if step.kind == "same":
            return values[step.operands[0].row]
        if step.kind == "linear":
            return self._linear(step, values, all_steps)
        return self._elementwise(step, values, all_steps)

    def _linear(self, step: Step, values: list[Any], all_steps: list[Step]) -> Any:
        dtype = str(step.node.dtype)
        left, width = values[step.operands[0].row]
        weight = self._stacked([one.operands[1].name for one in all_steps])
        if weight is None or len(weight[1]) != 3:
            return None
        stack, shape, turned = weight
        turned ^= packet(step.node) == "linear"
        taken = self.add("index.Tensor", (self.blocks, *shape[1:]), dtype, stack, [self.expert])
        inner, outer = (shape[2], shape[1]) if turned else (shape[1], shape[2])
        if inner != width:
            return None
        if turned:
            strides = (inner * outer, 1, inner)
            of = (self.blocks, inner, outer)
            taken = self.add("transpose.int", of, dtype, taken, 1, 2, strides=strides)
        made = self.add("bmm.default", (self.blocks, self.length, outer), dtype, left, taken)
        if len(step.operands) > 2:
            bias = self._vectors([one.operands[2].name for one in all_steps], outer, dtype)
            if bias is None:
                return None
            made = self.add("add.Tensor", (self.blocks, self.length, outer), dtype, made, bias)
        return made, outer

    def _vectors(self, names: list[str], width: int, dtype: str) -> Any:
        """A vector of each block's expert, which broadcasts over its rows."""
        found = self._stacked(names)
        if found is None or found[2] or found[1][1:] != (width,):
            return None
        taken = self.add("index.Tensor", (self.blocks, width), dtype, found[0], [self.expert])
        return self.add("unsqueeze.default", (self.blocks, 1, width), dtype, taken, 1)

    def _elementwise(self, step: Step, values: list[Any], all_steps: list[Step]) -> Any:
        widths = [values[o.row][1] for o in step.operands if o.row >= 0]
        width = max(widths)
        args: list[Any] = []
        for at, operand in enumerate(step.operands):
            if operand.row >= 0:
                args.append(values[operand.row][0])
            elif operand.name:
                node = self.nodes_by_name[operand.name]
                made = self._vectors(
                    [one.operands[at].name for one in all_steps], width, str(node.dtype)
                )
                if made is None:
                    return None
                args.append(made)
            else:
                args.append(operand.literal)
        operator = step.node.op.removeprefix("aten.").replace("_.", ".")
        shape = (self.blocks, self.length, width)
        return self.add(operator, shape, str(step.node.dtype), *args, **step.node.kwargs), width

    def _stacked(self, names: list[str]) -> tuple[Any, tuple[int, ...], bool] | None:
        """The experts' weights as one tensor, its shape, and whether each is read transposed; None if they cannot be stacked."""
        nodes = [self.nodes_by_name[name] for name in names]
        first = nodes[0]
        if packet(first) in ("t", "transpose", "permute") and len(first.shape or ()) == 2:
            below = self._stacked([ref(node.args[0]) or "" for node in nodes])
            return None if below is None else (below[0], below[1], not below[2])
        if packet(first) == "select":
            whole = self.nodes_by_name[ref(first.args[0]) or ""]
            alike = all(
                packet(n) == "select" and n.args == (first.args[0], 0, expert)
                for expert, n in enumerate(nodes)
            )
            fits = alike and (whole.shape or (0,))[0] == self.loop.experts
            return ({"ref": whole.name}, tuple(whole.shape or ()), False) if fits else None
        if len({(n.op in ("param", "buffer"), n.shape, n.dtype) for n in nodes}) > 1:
            return None
        if first.op not in ("param", "buffer") or len(set(names)) < len(names):
            return None
        shape = (len(nodes), *(first.shape or ()))
        listed = ", ".join(f"w{n}" for n in range(len(nodes)))
        make = f"lambda {listed}: torch.stack(({listed},))"
        refs = [{"ref": name} for name in names]
        return self.add("derived", shape, str(first.dtype), *refs, make=make), shape, False

    # ------------------------------------------------------------ together again

    def _combine(self, value: Any, width: int, kind: str) -> None:
        """Add the pairs of each token, in the result's type; `kind`: the type of the pairs."""
        dtype = str(self.loop.last.dtype)
        flat = self.add("reshape.default", (self.rows, width), kind, value, [self.rows, width])
        taken = self.add("index.Tensor", (self.pairs, width), kind, flat, [self.slot])
        if kind != dtype:
            taken = self.add("to.dtype", (self.pairs, width), dtype, taken, {"dtype": dtype})
        shape = (self.tokens, self.picks, width)
        each = self.add("reshape.default", shape, dtype, taken, list(shape))
        total = (self.tokens, width)
        added = self.add("sum.dim_IntList", total, dtype, each, [1])
        if self.loop.start is not None:
            self.add("add.Tensor", total, dtype, {"ref": self.loop.start}, added)
