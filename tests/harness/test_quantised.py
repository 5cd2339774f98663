"""Quantised operands and results: truth, draws, and which programs the judge accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dvk.harness.checking import quantised_draws
from dvk.harness.checking.case_keys import plan
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.in_float64 import InFloat64, in_float64
from dvk.harness.checking.input_domains import Domain
from dvk.harness.checking.input_draws import operands_of
from dvk.harness.checking.input_families import QUANTISED, derive, kind_of
from dvk.harness.checking.narrow_floats import PAIRS, narrowed, steps
from dvk.harness.checking.quantised_operands import Operand
from dvk.tasks.build import build
from tests.harness.problems import cases_of, made, model, refusals, task_of
from tests.harness.quantised_problems import PROBLEMS, QUICK, cases_in_its_class

TASKS = Path(__file__).parent.parent / "kernels" / "tasks"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ROLES = {
    "fp8_product": {0: "codes", 1: "codes", 2: "scale", 3: "scale"},
    "fp8_rows_linear": {"weight": "codes", "scale": "scale"},
    "int8_dynamic_linear": {"weight": "codes", "scale": "scale"},
    "int4_group_linear": {1: "packed", 2: "scale", 3: "zero"},
    "int4_words_linear": {"qweight": "packed", "qzeros": "packed", "scales": "scale"},
    "block_scaled_product": {0: "codes", 1: "exponent", 2: "codes", 3: "exponent"},
    "int8_cache_attention": {1: "codes", 2: "scale", 3: "codes", 4: "scale"},
    "norm_to_int8": {},
    "embedded_tokens": {},
}


@pytest.mark.parametrize("name", ROLES)
def test_roles_are_found_by_what_operands_go_through(name: str) -> None:
    operands = operands_of(build(task_of((TASKS / f"{name}.py").read_text())))
    found = {**operands.inputs, **operands.weights}
    assert {key: operand.role for key, operand in found.items()} == ROLES[name]


def test_positions_and_masks_are_no_codes() -> None:
    source = model(
        "return x * torch.cos(pos.float())[:, None] * keep[:, None]",
        "[torch.randn(64, 8), torch.arange(64, dtype=torch.int32), torch.rand(64) < 0.5]",
        arguments="x, pos, keep",
    )
    assert not operands_of(build(task_of(source)))


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_floats_of_eight_bits_vary_like_others_and_saturate(dtype: torch.dtype) -> None:
    native = (torch.randn(64, 32) * 20).to(dtype)
    generator = torch.Generator().manual_seed(1)
    assert kind_of(native, Domain()) == "signed"
    most = torch.finfo(dtype).max
    for family in ("zero_mean", "integers", "strays", "large", "heavy_tail", "huge", "nan"):
        drawn = derive(family, native, "signed", generator, False)
        assert drawn.dtype is dtype and drawn is not native
        wide = drawn.float()
        assert bool(wide.isnan().any()) == (family == "nan")
        assert wide[wide.isfinite()].abs().max() <= most
    large = derive("large", native, "signed", generator, False).float().abs()
    assert dtype is E5M2 or float((large == most).float().mean()) > 0.5


def test_steps_count_codes() -> None:
    codes = torch.arange(256).to(torch.uint8).view(E4M3)
    order = codes.float().argsort(stable=True)
    numbers = steps(codes)[order]
    finite = codes.float()[order].isfinite()
    apart = numbers[finite].diff()
    assert set(apart.tolist()) == {0, 1} and int((apart == 0).sum()) == 1, "-0 and 0 are one"
    assert (steps(codes)[codes.isnan()] == 1024).all()
    assert narrowed(torch.tensor([1e9, -1e9, float("nan")]), E4M3).float()[:2].tolist() == [
        448,
        -448,
    ]


def test_float64_follows_operands_through_conversions_and_keeps_quantisation() -> None:
    class Names(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.randn(16, 32).to(E4M3))
            self.register_buffer("s", torch.rand(16))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            codes = (x.float() * 20).round().to(torch.int8)
            y = codes.float() @ self.w.to(torch.float32).t() * self.s
            return y.to(torch.bfloat16), torch.zeros(3, dtype=torch.float32)

    module, x = Names(), torch.randn(8, 32)
    twin = in_float64(module)
    with InFloat64():
        y, zeros = twin(x.double())
    codes = (x.double() * 20).round()
    assert y.dtype is zeros.dtype is torch.float64 and torch.get_default_dtype() is torch.float32
    expected = codes @ module.w.double().t() * module.s.double()
    torch.testing.assert_close(y, expected, rtol=1e-13, atol=1e-10)


def test_a_scaled_product_of_codes_has_a_truth() -> None:
    cases = cases_in_its_class(PROBLEMS["SCALED_MM"].source, 1, "smoke")
    (want,) = made(cases)[0].expected
    assert want.truth is not None and want.once and want.own.typical < 1e-3


def test_draws_cover_the_range_of_each_role() -> None:
    def drawn(operand: Operand, native: torch.Tensor, cautious: bool = False) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        return quantised_draws.redrawn(operand, native, generator, cautious)

    packed = drawn(Operand("packed", 4), torch.zeros(64, 64, dtype=torch.uint8))
    assert len(packed.unique()) == 256 and int((packed == 0).all(1).sum()) >= 1
    words = drawn(Operand("packed", 4), torch.ones(64, 64, dtype=torch.int32))
    assert int(words.min()) < -(1 << 30) and int(words.max()) > 1 << 30
    zeros = drawn(Operand("zero", 4), torch.full((16, 16), 8, dtype=torch.uint8))
    assert (
        set(zeros.unique().tolist()) == set(range(16)) and float((zeros == 15).float().mean()) > 0.2
    )
    scales = drawn(Operand("scale"), torch.full((32, 32), 0.01))
    alive = scales[scales > 0]
    assert len(alive) < scales.numel() and float(alive.max() / alive.min()) > 30
    assert bool((drawn(Operand("scale"), torch.full((32, 32), 0.01), True) > 0).all())
    uneven = quantised_draws.redrawn(
        Operand("scale"), torch.ones(64), torch.Generator().manual_seed(3), True, uneven=True
    )
    assert float((uneven < 0.1 * uneven.max()).float().mean()) > 0.8
    negative = -torch.rand(8, 8)
    assert drawn(Operand("scale"), negative) is negative
    codes = drawn(Operand("codes"), torch.randn(64, 64).to(E4M3)).float()
    assert bool(codes.isfinite().all()) and float((codes.abs() == 448).float().mean()) > 0.05
    int4 = drawn(Operand("codes"), torch.randint(-8, 8, (64, 64), dtype=torch.int8))
    assert (int(int4.min()), int(int4.max())) == (-8, 7)
    exponents = drawn(Operand("exponent"), torch.full((64, 8), 120, dtype=torch.uint8))
    assert int(exponents.max()) < 255 and len(exponents.unique()) > 3


def test_pairs_of_four_bits_and_exponents_are_never_changed_as_numbers() -> None:
    if PAIRS is None:
        pytest.skip("this torch has no floats of four bits")
    pairs = torch.randint(0, 256, (8, 8), dtype=torch.uint8).view(PAIRS)
    exponents = torch.exp2(torch.randn(8, 8)).to(torch.float8_e8m0fnu)
    assert kind_of(pairs, Domain()) == kind_of(exponents, Domain()) == "fixed"
    assert torch.equal(steps(pairs), pairs.view(torch.uint8).short())
    generator = torch.Generator().manual_seed(3)
    assert quantised_draws.redrawn(Operand("packed", 4), pairs, generator).dtype is PAIRS
    other = quantised_draws.redrawn(Operand("exponent"), exponents, generator)
    assert not other.isnan().any() and len(steps(other).unique()) > 3


def test_quantised_inputs_are_planned_for_tasks_that_may_have_them() -> None:
    plain = task_of(model("return x + 1", "[torch.randn(4, 4)]"))
    coded = task_of(model("return x.float()", "[torch.zeros(4, 4, dtype=torch.uint8)]"))
    assert [key.family for key in plan(plain, "search", 1, 0)].count(QUANTISED) == 0
    assert [key.family for key in plan(coded, "search", 1, 0)].count(QUANTISED) == 2
    assert [key.family for key in plan(coded, "smoke", 1, 0)].count(QUANTISED) == 1


def test_buffers_of_codes_change_with_the_weights() -> None:
    cases = cases_of((TASKS / "int4_words_linear.py").read_text(), precision="half")
    native, other = cases.state(0), cases.state(1)
    assert cases.sets.names == {"qweight", "qzeros", "scales"}
    assert not torch.equal(native["qzeros"], other["qzeros"])
    assert torch.equal(native["shifts"], other["shifts"]), "a table of the module"
    apart = other["scales"].float() / native["scales"].float()
    assert float(apart.max() / apart.min()) > 8


def test_a_code_off_by_one_away_from_boundaries_is_refused() -> None:
    cases = cases_of((TASKS / "norm_to_int8.py").read_text())

    def result(
        m: torch.nn.Module, x: torch.Tensor, off: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * m.weight / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        most = y.abs().amax(-1, keepdim=True).clamp(min=1e-8)
        codes = torch.round(y * (127 / most)).clamp(-128, 127)
        codes[: off > 0, :off] -= codes[: off > 0, :off].sign()
        return codes.to(torch.int8), most / 127

    assert refusals(cases, result) == {}
    assert refusals(cases, lambda m, x: result(m, x, 40), first=True)


def refused(cases: Cases, name: str) -> tuple[dict[str, str], list[str]]:
    """Right programs that are refused, and wrong ones that are not."""
    problem = PROBLEMS[name]
    honest = {
        what: refusals(cases, program, first=True) for what, program in problem.honest.items()
    }
    missed = [what for what, program in problem.wrong.items() if not refusals(cases, program, True)]
    return {what: str(found) for what, found in honest.items() if found}, missed


@pytest.mark.parametrize("name", QUICK)
def test_right_programs_are_told_from_wrong_ones(name: str) -> None:
    assert refused(cases_in_its_class(PROBLEMS[name].source, 7), name) == ({}, [])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", PROBLEMS)
def test_right_programs_are_told_from_wrong_ones_under_other_seeds(name: str, seed: int) -> None:
    assert refused(cases_in_its_class(PROBLEMS[name].source, seed), name) == ({}, [])
