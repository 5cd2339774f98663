"""Variants of texts: algorithms, products of one's own or torch's, numbers as schedules have them."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk import nanolang
from dvk.agents.teacher.advice import Advice, follow
from dvk.composer import Plan, applicable
from dvk.nanolang import structures, variants, write
from tests.composer.programs import run_source
from tests.nanolang.compact_cases import rand
from tests.nanolang.compact_programs import Function, captured
from tests.tasks.shrink import shipped, shrink


@pytest.mark.parametrize("backend", ["cpp", "triton"])
def test_variants_cover_the_algorithms_and_say_so(backend: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(96, 96), nn.LayerNorm(96)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gelu(self.norm(self.linear(x))) + x

    graph = captured(Model(), [rand(40, 96)])
    found = variants(graph, backend, random.Random(0), 24)  # type: ignore[arg-type]
    assert len({v.text for v in found}) == len(found) >= 16
    tags = {tag for v in found for tag in v.tags if not re.match(r"k\d", tag)}
    assert {"epilogue in place", "epilogue separate", "left to torch"} <= tags
    algorithms_said = {words[0] for v in found for words in v.kernels.values()}
    wanted = (
        {"row looped", "row split", "row moments"}
        if backend == "cpp"
        else {"row registers", "row looped", "row looped welford"}
    )
    assert wanted <= algorithms_said
    own = (
        {"own products", "products left to torch"} <= tags,
        "product tiled threefold" in algorithms_said,
    )
    assert own == ((True, True) if backend == "triton" else (False, False))
    assert all(
        any(tag.startswith(f"{name}: {phrases[0]}") for tag in v.tags)
        for v in found
        for name, phrases in v.kernels.items()
    )
    again = variants(graph, backend, random.Random(0), 24)  # type: ignore[arg-type]
    assert [v.text for v in again] == [v.text for v in found]
    fused_behind = next(v for v in found if "k0" in v.kernels and "own products" not in v.tags)
    told = nanolang.facts(graph, fused_behind.plan, backend)["k0"]  # type: ignore[arg-type]
    assert (told["family"], told["does"], told["length"], told["rows"], told["after"]) == (
        "row",
        "norm",
        96,
        40,
        "linear",
    )
    assert told["operators"] == ["layer_norm", "gelu", "add"] and told["row length"] == "short"


@pytest.mark.parametrize(
    ("rows", "dtype", "own"),
    [(64, torch.float32, True), (64, torch.float16, True), (512, torch.float64, False)],
)
def test_matmuls_are_generated_where_the_cost_model_says_so(
    rows: int, dtype: torch.dtype, own: bool
) -> None:
    graph = captured(
        Function(lambda x, w: F.linear(x, w)),
        [torch.zeros(rows, rows, dtype=dtype), torch.zeros(rows, rows, dtype=dtype)],
    )
    first, *others = variants(graph, "triton", random.Random(0), 8)
    assert ("own products" in first.tags) == own
    assert any(("own products" in v.tags) != own for v in others)


def test_texts_of_many_products_leave_them_to_torch() -> None:
    def layers(x: torch.Tensor, w: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            x = F.gelu(F.linear(x, w))
        return x

    few, many = (
        structures(
            captured(Function(lambda x, w, n=n: layers(x, w, n)), [rand(64, 64), rand(64, 64)]),
            "triton",
        )
        for n in (2, 20)
    )
    assert any("own_matmul" in names for names in few) and not any(
        "own_matmul" in names for names in many
    )


@pytest.mark.parametrize(
    "product",
    [
        lambda x, w: x @ w,
        lambda x, w: F.gelu(torch.einsum("ik,kj->ij", x, w)),
        lambda x, w: F.gelu(torch.mv(x, w[:, 0])),
    ],
)
def test_leaving_products_to_torch_can_be_asked_for(product: Any) -> None:
    graph = captured(Function(product), [rand(64, 96), rand(96, 64)])
    told = [
        follow(graph, [Advice(structure=wanted)], "triton")
        for wanted in ("products left to torch", "own products")
    ]
    assert ["own_matmul" in plan.recipes for plan in told if plan is not None] in ([False], [True])


@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (lambda x: torch.softmax(x, -1), [(300, 5000)]),
        (lambda x, w: torch.relu(x @ w), [(33, 6), (6, 40)]),
        (lambda x, w: torch.relu(x @ w), [(3, 700), (700, 40)]),
    ],
)
def test_numbers_of_a_text_are_those_of_its_schedule(
    function: Any, sizes: list[tuple[int, int]]
) -> None:
    graph = captured(Function(function), [rand(*size) for size in sizes])
    for variant in variants(graph, "triton", random.Random(1), 16):
        for phrase in variant.kernels.get("k0", ())[1:]:
            word, number = phrase.rsplit(" ", 1)
            if (
                word in ("block", "warps", "depth", "columns")
                and "left to torch" not in variant.tags
            ):
                assert re.search(rf"\b{number}\b", variant.text), (phrase, variant.text)


def test_texts_are_short() -> None:
    (path,) = (p for p in shipped() if p.stem == "chain_linear_norm_gelu_residual")
    namespace = run_source(shrink(path.read_text()), path.stem)
    graph = captured(namespace.Model(*namespace.get_init_inputs()), namespace.get_inputs())
    names = tuple(applicable(graph.graph, "cuda", "triton"))
    for plan, most in (
        (Plan(tuple(n for n in names if n != "own_matmul")), 420),
        (Plan(names), 1200),
    ):
        assert (
            len(re.findall(r"[A-Za-z_]+|\d|[^\sA-Za-z_\d]|\n", write(graph, plan, "triton"))) < most
        )
