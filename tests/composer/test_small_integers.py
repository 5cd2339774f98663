"""Small integers that floats hold exactly: those that wrap are added as integers, and sums of products stay within int32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from dvk.composer.capture.export import trace_module
from dvk.composer.codegen.analysis.small_integers import exact_in
from dvk.composer.codegen.triton.scalar import literal
from dvk.composer.ir.loops import Ref
from dvk.composer.lowering.whole_graph import lower
from tests.composer.triton_cases import Function
from tests.composer.triton_programs import Program

BYTES = torch.zeros(12, 32, dtype=torch.uint8)
ZEROS = torch.zeros(12, 1, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("made", "exact"),
    [
        (lambda q, z: (q & 15) - 8, False),
        (lambda q, z: (q & 15) - (z & 15), False),
        (lambda q, z: ((q & 15) - 8).to(torch.int32) + 1, True),
        (lambda q, z: (q & 15).to(torch.int8) + 120, False),
        (lambda q, z: (q & 15) + 240, True),
        (lambda q, z: (q & 15).to(torch.int8) - 8, True),
        (lambda q, z: (q & 15).to(torch.int32) - (z & 15), True),
    ],
)
def test_a_sum_that_wraps_is_not_the_sum_of_floats(
    made: Callable[..., torch.Tensor], exact: bool
) -> None:
    program = Program(Function(lambda q, z: made(q, z).to(torch.float32) * 0.5), [BYTES, ZEROS])
    (kernel,) = program.kernels.values()
    sums = [i for i in kernel.instrs if i.op in ("add", "sub")]
    assert exact_in(kernel, Ref(sums[-1].id), "float32") == exact


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (-8, "uint8", "248"),
        (300, "int8", "44"),
        (250, "uint8", "250"),
        (-(1 << 31), "int32", str(-(1 << 31))),
    ],
)
def test_a_number_outside_its_type_wraps_as_in_pytorch(value: int, kind: str, text: str) -> None:
    assert literal(value, kind) == text


@pytest.mark.parametrize(("length", "owned"), [((1 << 17) - 1, True), (1 << 17, False)])
def test_a_sum_of_products_of_bytes_fits_int32(length: int, owned: bool) -> None:
    """2¹⁷ products of -128 and -128 are 2³¹."""

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.float() * 0.5) @ (w.float() * 0.25).t()

    x, w = (torch.empty(n, length, dtype=torch.int8, device="meta") for n in (2, 3))
    graph = trace_module(Function(product), [x, w], ["x", "w"]).graph
    prims = lower(graph, device="cuda")
    sums = [n.dtype for n in prims.prims if n.op == "sum"]
    assert sums == (["int32"] if owned else ["float32"])
