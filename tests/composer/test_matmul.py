"""Matmuls as kernels: operators, layouts and neighbours agree with PyTorch in float64; without the recipe nothing changes."""

from __future__ import annotations

import copy
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk import tasks
from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.export import trace
from dvk.composer.codegen import cpp
from dvk.composer.codegen import triton as renderer
from dvk.composer.compose import fuse
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.matmul_form import form_of
from dvk.composer.ir.schedules.triton import TritonProduct, TritonSkinny
from dvk.composer.ir.text import spelled
from dvk.composer.kernel_classes import class_of
from dvk.composer.recipes import OWN_FAMILIES
from dvk.harness import judge
from dvk.nanolang import structures
from dvk.records import Node, Status
from tests.composer.programs import (
    TASK,
    Program,
    capture,
    compiled,
    differences,
    out_of_bounds,
    usual,
)
from tests.harness.conftest import QUICK

randn = torch.randn
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def own(forward: Any, *args: Any, **given: Any) -> Program:
    return Program(forward, *args, recipes=lambda graph: (*usual(graph), "own_matmul"), **given)


def doubled(value: Any) -> Any:
    return (
        value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
    )


def check(made: dict[str, Program]) -> None:
    """No matmul is left to torch, and each is as close to float64 as its dtype allows."""
    compiled(made.values())
    wrong = {}
    for name, program in made.items():
        want = program.eager()
        with torch.no_grad():
            wide = (
                Program.eager(program) if program.args[0].dtype == torch.float64 else _wide(program)
            )
        found = differences(program.run(), want, precision=program.args[0].dtype)
        found += differences(
            _as_double(program.run()), wide, layout=False, precision=program.args[0].dtype
        )
        found += [f"stayed a call: {op}" for op in program.externs]
        found += [text for kernel in program.kernels for text in out_of_bounds(kernel)]
        if found:
            wrong[name] = found
    assert wrong == {}


def _wide(program: Program) -> Any:
    module = (
        program.module
        if not any(True for _ in program.module.parameters())
        else _copied(program.module)
    )
    return module(*(doubled(a) for a in program.args))


def _copied(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).double()


def _as_double(value: Any) -> Any:
    return torch.utils._pytree.tree_map(doubled, value)


OPERATORS: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "linear": (lambda x, w, b: F.linear(x, w, b), (randn(3, 5, 37), randn(19, 37), randn(19))),
    "linear of a vector": (lambda x, w: F.linear(x, w), (randn(37), randn(19, 37))),
    "mm": (torch.mm, (randn(13, 21), randn(21, 18))),
    "one row": (torch.mm, (randn(1, 300), randn(300, 70))),
    "one column": (torch.mm, (randn(130, 33), randn(33, 1))),
    "matmul of batches": (torch.matmul, (randn(2, 1, 9, 7), randn(3, 7, 11))),
    "matmul of a batch and a matrix": (torch.matmul, (randn(2, 3, 9, 7), randn(7, 11))),
    "matrix and vector": (torch.matmul, (randn(9, 40), randn(40))),
    "vector and matrices": (torch.matmul, (randn(40), randn(3, 40, 9))),
    "dot": (lambda x, y: torch.matmul(x, y) * 2, (randn(40), randn(40))),
    "mv": (torch.mv, (randn(9, 40), randn(40))),
    "bmm": (torch.bmm, (randn(5, 8, 8), randn(5, 8, 8))),
    "addmm": (
        lambda c, x, y: torch.addmm(c, x, y, beta=0.5, alpha=-2.0),
        (randn(11), randn(7, 9), randn(9, 11)),
    ),
    "addmm of nothing": (
        lambda c, x, y: torch.addmm(c, x, y, beta=0),
        (torch.full((11,), float("nan")), randn(7, 9), randn(9, 11)),
    ),
    "baddbmm": (
        lambda c, x, y: torch.baddbmm(c, x, y),
        (randn(3, 1, 11), randn(3, 7, 9), randn(3, 9, 11)),
    ),
    "attention scores": (
        lambda q, k: torch.einsum("bshd,bthd->bhst", q, k) * 0.3,
        (randn(2, 9, 3, 16), randn(2, 11, 3, 16)),
    ),
    "two letters summed": (
        lambda x, y: torch.einsum("aij,bij->ab", x, y),
        (randn(5, 4, 6), randn(7, 4, 6)),
    ),
    "both transposed": (lambda x, y: x.t() @ y.t(), (randn(21, 13), randn(18, 21))),
    "heads put together": (
        lambda x, w: x.transpose(1, 2).reshape(2, 9, 12) @ w,
        (randn(2, 3, 9, 4), randn(12, 10)),
    ),
    "strided": (lambda x, y: x[:, ::2] @ y[1:, :9], (randn(6, 40), randn(21, 18))),
    "expanded": (lambda x, y: x.expand(3, 6, 8) @ y, (randn(6, 8), randn(3, 8, 5))),
    "with itself": (lambda x: x @ x.t(), (randn(13, 21),)),
    "outer": (lambda x, y: x[:, None] @ y[None] + 1, (randn(13), randn(21))),
    "long k": (torch.mm, (randn(2, 9000), randn(9000, 3))),
    "long k along memory": (F.linear, (randn(2, 9000), randn(3, 9000))),
}


@pytest.mark.slow
def test_every_operator_agrees_with_float64() -> None:
    check({name: own(forward, *args) for name, (forward, args) in OPERATORS.items()})


def test_types() -> None:
    x, w, b = randn(6, 33) * 0.3, randn(21, 33), randn(21)
    check(
        {
            f"{kind}": own(
                lambda x, w, b: (F.gelu(F.linear(x, w, b)), x @ w.t()),
                *(v.to(kind) for v in (x, w, b)),
            )
            for kind in FLOATS
        }
    )
    for left in (lambda n: n @ n.t(), lambda n: n.to(torch.complex64) @ n.t().to(torch.complex64)):
        program = capture(left, torch.arange(6).view(2, 3))
        assert "own_matmul" not in applicable(program.graph, "cpu", "cpp")


class Gated(nn.Module):
    """Two matmuls over one index space, with prologues, epilogues and neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.scale = (
            nn.Linear(24, 20),
            nn.Linear(24, 20, bias=False),
            nn.Parameter(randn(24)),
        )

    def forward(self, x: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        y = x * self.scale
        return F.silu(self.a(y)) * self.b(y) + r


def cell(
    x: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    w: torch.Tensor,
    u: torch.Tensor,
    b: torch.Tensor,
) -> Any:
    i, f, g, o = (F.linear(x, w, b) + F.linear(h, u)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@pytest.mark.slow
def test_neighbours_share_the_kernel() -> None:
    x = randn(7, 24)
    fused: dict[str, Program] = {
        "a gate": own(Gated(), x, randn(7, 20)),
        "what comes before": own(lambda x, w: torch.relu(x) @ w, x, randn(24, 20)),
        "a masked operand": own(lambda x, w: torch.tril(x) @ w, randn(24, 24), randn(24, 20)),
        "a transposed result": own(lambda x, w: (x @ w).t().contiguous() * 2, x, randn(24, 20)),
        "the same sides the other way round": own(
            lambda x, w: x @ w + (w @ x).t(), randn(24, 24), randn(24, 24)
        ),
        "the halves of one product": own(
            lambda x, w, b: F.glu(F.linear(x, w, b), -1), x, randn(40, 24), randn(40)
        ),
        "a recurrent cell": own(
            cell, x, randn(7, 24), randn(7, 24), randn(96, 24), randn(96, 24), randn(96)
        ),
        "heads": own(
            lambda x, w: torch.relu(F.linear(x, w)).view(7, 4, 5).transpose(0, 1), x, randn(20, 24)
        ),
    }
    check(fused)
    assert {name: len(p.kernels) for name, p in fused.items()} == dict.fromkeys(fused, 1)
    assert all(p.kernels[0].family == "product" for p in fused.values())
    apart = {
        "a costly operand of many columns": own(lambda x, w: F.gelu(x) @ w, x, randn(24, 40)),
        "one product of another": own(
            lambda x, w: torch.relu(x @ w) @ w, randn(24, 24), randn(24, 24)
        ),
        "a softmax": own(lambda x, w: torch.softmax(x @ w, -1), x, randn(24, 24)),
        "products of other sides": own(
            lambda x, y, w: x @ y + y @ w, randn(3, 8, 8), randn(3, 8, 8), randn(8, 8)
        ),
        "sums of k": own(lambda x, w: x @ w + x.sum(1, keepdim=True), randn(24, 24), randn(24, 24)),
        "a pool": own(lambda x, w: F.max_pool1d(x @ w, 2), x, randn(24, 20)),
        "a head of one column": own(
            nn.Sequential(nn.Linear(24, 20), nn.ReLU(), nn.Linear(20, 1)), x
        ),
        "a head that is a vector": own(lambda x, w, v: (x @ w) @ v, x, randn(24, 20), randn(20)),
        "an operand that is a result, too": own(
            lambda x, v: ((h := torch.exp(x)), h @ v), x, randn(24)
        ),
        "another type": own(
            lambda x, w, y: (x @ w).double() * (y @ y.t()), x, randn(24, 7), randn(7, 24).double()
        ),
        "a k of one element": own(
            lambda x, y, w: (x @ y, torch.sigmoid(x) @ w), randn(7, 1), randn(1, 9), randn(1, 7)
        ),
    }
    check(apart)
    assert {name: len(p.kernels) for name, p in apart.items()} == dict.fromkeys(apart, 2)
    shared = own(lambda x, w: (x.exp(), x.exp() @ w), x, randn(24, 20))
    check({"shared": shared})


def test_no_product_is_made_twice_for_its_parts() -> None:
    given = randn(7, 24), randn(40, 24), randn(40)
    made = {
        "whole and half": own(
            lambda x, w, b: ((p := torch.relu(F.linear(x, w, b))), p[:, :20] * 2), *given
        ),
        "parts that overlap": own(
            lambda x, w, b: (p := F.linear(x, w, b))[:, 1:] * p[:, :-1], *given
        ),
    }
    check(made)
    for name, program in made.items():
        assert (
            sum(i.op == "reduce_sum" for kernel in program.kernels for i in kernel.instrs) == 1
        ), name


@pytest.mark.parametrize("m", [64, 66, 129])
def test_five_sums_read_no_rows_that_there_are_not(m: int) -> None:
    def five(x: torch.Tensor, *weights: torch.Tensor) -> Any:
        return sum(torch.tanh(x @ w) for w in weights)

    program = own(five, randn(m, 12), *(randn(12, 9) for _ in range(5)))
    heights = {
        min(3, band + 64 - y, m - y)
        for band in range(0, m, 64)
        for y in range(band, min(band + 64, m), 3)
    }
    written = {int(h) for h in re.findall(r"static void \w+_(\d+)\(", program.cpp)}
    assert heights <= written
    check({"five": program})


SHAPES = ((1, 40, 70), (66, 5, 9), (9, 300, 70))


@pytest.mark.parametrize("transposed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_schedule_agrees_with_torch(transposed: bool) -> None:
    def forward(x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.tanh(F.linear(x, w) if transposed else x @ w) * 2

    made: dict[str, Program] = {}
    for m, k, n in SHAPES:
        args = randn(m, k) / k**0.5, randn(n, k) if transposed else randn(k, n)
        first = own(forward, *args)
        for option in (o for o in cpp.schedules(first.kernels[0]) if o.width == 512):
            made[f"{m} {k} {n} {option}"] = first.under(lambda kernel, option=option: option)
    assert {s.form for p in made.values() for s in p.schedules.values()} >= (
        {"dot", "outer"} if transposed else {"outer"}
    )
    check(made)


def product(
    m: int, k: int, n: int, dtype: torch.dtype = torch.bfloat16, batch: tuple[int, ...] = ()
) -> Kernel:
    x, w = (torch.empty(*batch, *shape, dtype=dtype, device="meta") for shape in ((m, k), (k, n)))
    captured = capture(torch.matmul, x, w)
    (kernel,) = fuse(TASK, captured, ("own_matmul",)).ordered
    return kernel


def test_the_form_says_rows_columns_and_batch() -> None:
    form = form_of(product(5, 6, 7, batch=(2, 3)))
    assert form is not None
    assert form.sizes == (6, 5, 7)
    shared = capture(lambda x, w: x @ w, randn(2, 3, 5, 6), randn(6, 7))
    (kernel,) = fuse(TASK, shared, ("own_matmul",)).ordered
    form = form_of(kernel)
    assert form is not None
    assert form.sizes == (1, 30, 7)


@pytest.mark.slow
def test_the_model_of_a_gpu_chooses_tiles_that_suit_the_product() -> None:
    square = renderer.default_schedule(product(4096, 4096, 4096))
    assert (
        isinstance(square, TritonProduct)
        and square.rows * square.columns >= 128 * 128
        and square.splits == 1
    )
    few = renderer.default_schedule(product(8, 4096, 4096))
    assert isinstance(few, TritonSkinny) or few.rows == 16
    assert isinstance(renderer.default_schedule(product(1, 4096, 4096)), TritonSkinny)
    assert renderer.default_schedule(product(128, 65536, 128)).splits > 1
    for m, k, n in itertools.product((1, 7, 3000), (5, 900), (1, 4096)):
        for dtype in FLOATS[:3:2]:
            options = renderer.schedules(product(m, k, n, dtype))
            assert 1 <= len(options) <= 12 and len({str(o) for o in options}) == len(options)


def test_a_square_product_is_offered_with_programs_that_walk_and_in_different_tiles() -> None:
    options = [o for o in renderer.schedules(product(4096, 4096, 4096)) if hasattr(o, "rows")]
    assert any(o.programs for o in options)
    assert len({(o.rows, o.columns) for o in options}) >= 5


def test_float32_begins_with_tensor_cores_where_arithmetic_binds_and_can_do_without_them() -> None:
    for m, k, n in ((4096, 4096, 4096), (300, 7000, 900), (64, 64, 64), (16384, 4096, 16384)):
        dots = [
            o.dot
            for o in renderer.schedules(product(m, k, n, torch.float32))
            if isinstance(o, TritonProduct)
        ]
        assert {"tf32x3", ""} == set(dots) and (dots[0] == "tf32x3" or m == 64)
    assert all(
        not getattr(o, "dot", "")
        for dtype in FLOATS[1:]
        for o in renderer.schedules(product(512, 512, 512, dtype))
    )


def test_float32_is_exact_unless_the_task_declares_tf32() -> None:
    captured = capture(torch.matmul, randn(64, 64), randn(64, 64))
    for precision, words in (("fp32", {"ieee", "tf32x3"}), ("tf32", {"tf32"})):
        (kernel,) = fuse(
            TASK.model_copy(update={"precision": precision}), captured, ("own_matmul",)
        ).ordered
        texts = [
            renderer.render(kernel, s)
            for s in renderer.schedules(kernel)
            if isinstance(s, TritonProduct)
        ]
        assert {
            word for text in texts for word in re.findall(r'input_precision="(\w+)"', text)
        } == words
    assert class_of(kernel) == "product tf32, k-, 2^6 × 2^6 of 2^6"


def test_nothing_leaves_torch_without_the_recipe_and_texts_that_a_model_learns_have_none_of_it() -> (
    None
):
    captured = capture(lambda x, w: torch.relu(x @ w), randn(4, 5), randn(5, 6))
    names = tuple(applicable(captured.graph, "cpu", "cpp"))
    assert "own_matmul" in names and "own_matmul" not in applicable(captured.graph, "cuda", "cuda")
    assert len(fuse(TASK, captured, names).ordered) == 1
    without = fuse(TASK, captured, tuple(n for n in names if n != "own_matmul"))
    assert [p.op for p in without.part.users if p.kind == "extern"] == ["aten.matmul.default"]
    assert not any(set(found) & set(OWN_FAMILIES) for found in structures(captured, "cpp"))


GATE = """import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.down = nn.Linear(40, 72), nn.Linear(40, 72, bias=False), nn.Linear(72, 33)

    def forward(self, x):
        return self.down(F.silu(self.a(x)) * self.b(x))


def get_inputs():
    return [torch.randn(5, 40)]
"""
SCORES = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k):
        return torch.tanh(torch.bmm(q, k.transpose(1, 2)) * 0.25)


def get_inputs():
    return [torch.randn(6, 9, 16, dtype=torch.bfloat16), torch.randn(6, 11, 16, dtype=torch.bfloat16)]
"""


@pytest.mark.slow
@pytest.mark.parametrize("source", [GATE, SCORES], ids=["gate", "scores"])
def test_the_judge_finds_them_right(source: str, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(source, encoding="utf-8")
    task = tasks.load(str(file))
    captured = trace(task)
    made = compose(task, captured, Plan((*usual(captured.graph), "own_matmul")), "cpp")
    (verdict,) = judge(task, [made], tier="search", config=QUICK)
    assert verdict.status is Status.OK, verdict


def test_the_path_that_einsum_took_is_written_out() -> None:
    """With opt_einsum installed the operator has one, which torch.einsum does not accept."""
    formula, operands = "ij,jk,k->i", [randn(3, 4), randn(4, 5), randn(5)]
    node = Node(
        name="v3",
        op="aten.einsum.default",
        args=(formula, [{"ref": f"x{n}"} for n in range(3)]),
        kwargs={"path": [1, 2, 0, 1]},
        shape=(3,),
        dtype="float32",
        strides=(1,),
    )
    found = eval(
        spelled(node, str), {"torch": torch, **{f"x{n}": one for n, one in enumerate(operands)}}
    )
    torch.testing.assert_close(found, torch.einsum(formula, *operands))
