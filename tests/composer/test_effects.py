"""Writes and memory sharing of operators, by PyTorch's schemas."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from dvk.composer.ir.effects import UNDECLARED, is_view, schema, shared, twin, written
from dvk.records import Node
from tests.composer.programs import capture


def test_every_schema_that_torch_has_declared_is_read_as_torch_reads_it() -> None:
    compared = 0
    for declared in torch._C._jit_get_all_schemas():
        name = declared.name.removeprefix("aten::")
        known = schema(f"aten.{name}.{declared.overload_name or 'default'}")
        if known is None:
            continue
        theirs = [
            (a.name, a.kwarg_only, a.alias_info is not None and a.alias_info.is_write)
            for a in declared.arguments
        ]
        mine = [(a.name, a.by_name, a.written) for a in known.arguments]
        shares = any(r.alias_info is not None for r in declared.returns)
        if len(theirs) == len(mine):  # operators of TorchScript have names of others
            compared += 1
            assert mine == theirs and bool(known.returned) == shares, str(declared)
    assert compared > 2500


@pytest.mark.slow
def test_schemas_are_read_without_torch() -> None:
    code = "import sys; from dvk.composer.ir.effects import schema; assert schema('aten.add.Tensor'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


TWINS = {
    "aten.add_.Tensor": "aten.add.Tensor",
    "aten.add.out": "aten.add.Tensor",
    "aten.pow_.Scalar": "aten.pow.Tensor_Scalar",
    "aten.sum.IntList_out": "aten.sum.dim_IntList",
    "aten.zero_.default": "aten.zero.default",
    "aten.t_.default": "aten.t.default",
    "aten.normal_.default": None,
    "aten.bernoulli_.float": None,
    "aten.max.dim_max": None,
    "aten._foreach_mul_.Scalar": None,
    "aten.add.Tensor": None,
}


@pytest.mark.parametrize("op", TWINS)
def test_the_operator_that_computes_what_another_writes(op: str) -> None:
    assert twin(op) == TWINS[op]


A, B, C = {"ref": "a"}, {"ref": "b"}, {"ref": "c"}
WRITES: list[tuple[str, tuple[Any, ...], dict[str, Any], list[str], list[str]]] = [
    ("aten.add_.Tensor", (A, B), {}, ["a"], ["a"]),
    ("aten.add.out", (A, B), {"out": C}, ["c"], ["c"]),
    ("aten.max.dim_max", (A, 0), {"max": B, "max_values": C}, ["b", "c"], ["b", "c"]),
    ("aten._foreach_mul_.List", ([A, B], [C, C]), {}, ["a", "b"], []),
    ("aten.slice.Tensor", (A, 0, 0, 2), {}, [], ["a"]),
    ("aten.split.Tensor", (A, 2), {}, [], ["a"]),
    ("aten.dropout.default", (A, 0.5, False), {}, [], ["a"]),
    ("aten.detach_.default", (A,), {}, [], ["a"]),
    ("aten.batch_norm.default", (A, None, None, B, C, True, 0.1, 1e-5, False), {}, ["b", "c"], []),
    ("aten.batch_norm.default", (A, None, None, B, C, False, 0.1, 1e-5, False), {}, [], []),
    ("aten.native_batch_norm.default", (A, None, None, B, C, True, 0.1, 1e-5), {}, ["b", "c"], []),
    ("aten.set_.source_Tensor", (A, B), {}, ["a"], ["a", "b"]),
    ("aten.abs.no_such_out", (A,), {"out": B}, ["a", "b"], ["a", "b"]),
    ("aten.einsum.default", ("ij->ji", [A]), {}, [], ["a"]),
    ("aten.einsum.default", ("ij,jk->ik", [A, B]), {}, [], []),
    ("aten.einsum.default", ("ij,ij->ij", [A, A]), {}, [], []),
    ("getitem", (A, 0), {}, [], ["a"]),
    ("input", (), {}, [], []),
]


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "writes", "shares"),
    WRITES,
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_writes_and_memory_sharing_of_calls(
    op: str, args: Any, kwargs: Any, writes: list[str], shares: list[str]
) -> None:
    node = Node(name="v", op=op, args=args, kwargs=kwargs)
    assert (written(node), shared(node)) == (writes, shares)


def test_an_in_place_result_is_no_view_and_a_slice_is() -> None:
    assert not is_view(Node(name="v", op="aten.add_.Tensor", args=(A, B))) and is_view(
        Node(name="v", op="aten.t.default", args=(A,))
    )


def pow_(x: torch.Tensor) -> Any:
    y = x * 1.5
    y.pow_(2)
    return y + 1


def out_of_a_temporary(x: torch.Tensor) -> Any:
    y = torch.empty(4, 4)
    torch.mul(x, 2, out=y)
    return torch.exp(y, out=y) + 1


def half(x: torch.Tensor) -> Any:
    y = x.half()
    y.add_(x)
    return y + 1


def view_read_later(x: torch.Tensor) -> Any:
    y = x * 1.5
    h = y[:, :2]
    h.mul_(2.0)
    y.add_(1.0)
    return h.sum(-1)


def transposed(x: torch.Tensor) -> Any:
    y = x.t() * 2
    y.add_(torch.arange(4.0))
    y.t_()
    return y.mul_(2)


def compared(x: torch.Tensor) -> Any:
    y = x * 1
    y.gt_(0)
    return y + 0.5


LEFT: list[tuple[Callable[[torch.Tensor], Any], list[str]]] = [
    (pow_, []),
    (out_of_a_temporary, []),
    (transposed, []),
    (half, ["aten.add_.Tensor"]),
    (view_read_later, ["aten.mul_.Scalar", "aten.add_.Scalar"]),
    (compared, ["aten.gt_.Scalar"]),
]


@pytest.mark.parametrize(("function", "left"), LEFT, ids=lambda v: getattr(v, "__name__", ""))
def test_writes_into_memory_of_the_graph_become_ordinary_operators_where_the_result_is_the_same(
    function: Any, left: list[str]
) -> None:
    found = [n.op for n in capture(function, torch.randn(4, 4)).graph.nodes if written(n)]
    assert len(found) == len(left) and [op.split(".")[1] for op in found] == [
        op.split(".")[1] for op in left
    ]


class Sharing(torch.fx.Interpreter):
    """Records operators that return an operand's memory without declaring it."""

    def __init__(self, graph: torch.fx.GraphModule):
        super().__init__(graph)
        self.found: set[str] = set()

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(n.target, torch._ops.OpOverload) and all(
            r.alias_info is None for r in n.target._schema.returns
        ):
            given = {_memory(t) for t in tree_leaves(self.fetch_args_kwargs_from_env(n))}
            if any(_memory(t) in given - {0} for t in tree_leaves(result)):
                self.found.add(n.target._schema.name.removeprefix("aten::"))
        return result


def _memory(value: Any) -> int:
    plain = isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel()
    return value.untyped_storage().data_ptr() if plain else 0


@pytest.mark.hand
@pytest.mark.slow
def test_operators_that_share_memory_undeclared_are_listed() -> None:
    pytest.importorskip("expecttest")
    from tests.composer.operators import operators

    found: set[str] = set()
    tried = 0
    for operator in operators():
        name = str(operator.aten_name or operator.name)
        names = [
            n
            for n in torch._C._dispatch_get_all_op_names()
            if n.partition(".")[0] == f"aten::{name}"
        ]
        # Only composite operators can return an operand without declaring it.
        made = any(
            torch._C._dispatch_has_kernel_for_dispatch_key(n, "CompositeImplicitAutograd")
            for n in names
        )
        if torch.float32 not in operator.dtypes or (names and not made):
            continue
        for sample in itertools.islice(
            operator.sample_inputs("cpu", torch.float32, requires_grad=False), 2
        ):
            leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))

            def call(
                *tensors: torch.Tensor,
                leaves: Any = leaves,
                spec: Any = spec,
                operator: Any = operator,
            ) -> Any:
                rest = iter(tensors)
                first, args, kwargs = tree_unflatten(
                    [next(rest) if isinstance(v, torch.Tensor) else v for v in leaves], spec
                )
                return operator(first, *args, **kwargs)

            given = [v for v in leaves if isinstance(v, torch.Tensor)]
            try:
                with torch.no_grad():
                    sharing = Sharing(make_fx(call, pre_dispatch=True, tracing_mode="real")(*given))
                    sharing.run(*given)
            except Exception:  # noqa: BLE001 - what cannot be traced is no graph
                continue
            found |= sharing.found
            tried += 1
    assert tried > 200 and "broadcast_tensors" in found and found <= UNDECLARED
