"""Ordinary tasks with integers are judged as ever: what looks like a quantised operand, a scale or a zero point is none."""

from __future__ import annotations

import pytest
import torch

from dvk.harness.checking import quantised_operands, sensitivity
from dvk.harness.checking.case_keys import InputSetKey, plan
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.in_float64 import InFloat64, in_float64
from dvk.harness.checking.input_draws import operands_of, quantises
from dvk.harness.checking.input_families import QUANTISED
from dvk.harness.checking.quantised_operands import Operand
from dvk.harness.checking.weight_sets import INTEGERS, WeightSets
from dvk.tasks.build import build
from tests.harness.problems import HEAD, cases_of, made, model, refusals, task_of

INT32 = "dtype=torch.int32"
BYTES = "dtype=torch.uint8"
IMAGE = f"torch.randint(0, 256, (2, 3, 8, 8), {BYTES})"
FLAGS = "torch.rand(4, 6) < 0.5"
ORDINARY = {
    "slots of a paged cache": model(
        "return cache[slot // 16, slot % 16]",
        f"[torch.randn(4, 16, 8), torch.randint(0, 64, (20,), {INT32})]",
        arguments="cache, slot",
    ),
    "slots by bits": model(
        "return cache[slot >> 4, slot & 15]",
        f"[torch.randn(4, 16, 8), torch.randint(0, 64, (20,), {INT32})]",
        arguments="cache, slot",
    ),
    "hashed ids": model(
        "return F.embedding(ids % 20, self.w)",
        f"[torch.randint(0, 500, (9,), {INT32})]",
        "self.w = nn.Parameter(torch.randn(20, 4))",
        "ids",
    ),
    "parity of ids": model(
        "return self.w[ids] + (ids % 2)[..., None] * self.t",
        f"[torch.randint(0, 20, (9,), {INT32})]",
        "self.w = nn.Parameter(torch.randn(20, 4)); self.t = nn.Parameter(torch.rand(4))",
        "ids",
    ),
    "a mask of tokens": model(
        "return (self.w[ids] * mask[..., None]).sum(1)",
        f"[torch.randint(0, 20, (4, 6)), ({FLAGS}).to(torch.uint8)]",
        "self.w = nn.Parameter(torch.randn(20, 4))",
        "ids, mask",
    ),
    "two masks": model(
        "return x * (a & b)",
        f"[torch.rand(4, 6), ({FLAGS}).to(torch.uint8), ({FLAGS}).to(torch.uint8)]",
        arguments="x, a, b",
    ),
    "a causal mask in a buffer": model(
        "return w * self.b - 1e4 * (1 - self.b)",
        "[torch.randn(8, 8)]",
        f"self.register_buffer('b', torch.tril(torch.ones(8, 8, {BYTES})))",
        "w",
    ),
    "offsets of bytes in one table": model(
        "return F.embedding(ids + self.starts, self.w)",
        f"[torch.randint(0, 10, (9, 3), {BYTES})]",
        "self.register_buffer('starts', torch.tensor([0, 10, 20])); self.w = nn.Parameter(torch.randn(30, 4))",
        "ids",
    ),
    "powers of a rate": model(
        "return x * 0.9 ** age[:, None]",
        f"[torch.randn(30, 4), torch.arange(30, {INT32})]",
        arguments="x, age",
    ),
}
NORMALISED = {
    "whole means": "(x.float() - self.mean) / self.std",
    "a bias of zero": "x.float() + self.bias",
    "a factor for each channel": "x.float() * self.factor - self.mean",
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_integers_have_no_role_and_no_draw(name: str) -> None:
    built = build(task_of(ORDINARY[name]))
    operands = operands_of(built)
    assert not operands, operands
    cases = cases_of(ORDINARY[name], "smoke")
    assert QUANTISED not in {case.key.family for case in made(cases)}


@pytest.mark.parametrize("name", NORMALISED)
def test_normalising_an_image_has_no_zero_points_and_no_scales(name: str) -> None:
    init = (
        "self.register_buffer('mean', torch.tensor([123., 117., 104.]).view(3, 1, 1));"
        " self.register_buffer('std', torch.tensor([58., 57., 57.]).view(3, 1, 1));"
        " self.bias = nn.Parameter(torch.zeros(3, 1, 1)); self.factor = nn.Parameter(torch.ones(3, 1, 1))"
    )
    operands = operands_of(build(task_of(model(f"return {NORMALISED[name]}", f"[{IMAGE}]", init))))
    assert not operands.weights, operands


def test_a_weight_that_does_not_look_like_its_role_is_randomised() -> None:
    layer = torch.nn.Linear(6, 4)
    sets = WeightSets(layer, 3, {"weight": Operand("scale")})
    for number in (INTEGERS, 1, 2):
        assert not torch.equal(sets.state(number)["weight"], sets.state(0)["weight"])


def test_a_table_written_into_a_program_is_refused_beside_a_mask() -> None:
    source = ORDINARY["a mask of tokens"]
    cases = cases_of(source, "smoke")
    table = build(task_of(source)).model.w.detach()
    assert refusals(cases, lambda m, i, mask: (table[i] * mask[..., None]).sum(1), first=True)
    assert not refusals(cases, lambda m, i, mask: (m.w[i] * mask[..., None]).sum(1))


def test_only_tensors_with_a_known_origin_are_kept_while_roles_are_sought() -> None:
    weight, x = torch.randint(-8, 8, (8, 8), dtype=torch.int8), torch.randn(4, 8)
    plain = torch.randn(8, 8)
    trail = quantised_operands._Trail([x, weight, plain], 1)
    with trail:
        y = torch.relu(x @ weight.float().t())
        kept = len(trail._alive)
        for _ in range(20):
            y = torch.tanh(y @ plain)
    assert len(trail._alive) == kept
    assert {n: o.role for n, o in trail.operands().items()} == {1: "codes"}


def test_float64_keeps_writes_through_views_of_a_plain_cache() -> None:
    class Cached(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = [torch.zeros(3, 4)]

        def forward(self, k: torch.Tensor) -> torch.Tensor:
            self.cache[0][:, 1] = k
            self.cache[0].view(12)[:2].add_(1)
            return self.cache[0].sum(1)

    k, twin = torch.randn(3), in_float64(Cached())
    with InFloat64():
        found = twin(k.double())
    assert found.dtype is torch.float64
    torch.testing.assert_close(found.float(), Cached()(k))


def test_classes_in_bytes_are_no_codes() -> None:
    def judged_at(places: str, inputs: str = "[torch.randn(64, 10)]") -> bool:
        return quantises(build(task_of(model(f"return {places}", inputs))))

    assert not judged_at("x.argmax(1).to(torch.uint8)")
    assert not judged_at("(x > 0).to(torch.int8)")
    assert not judged_at("torch.topk(x, 2)[1].to(torch.uint8)")
    assert judged_at("x.round().clamp(-128, 127).to(torch.int8)")
    assert judged_at("x.round().int().clamp(0, 15).to(torch.uint8)")
    assert judged_at("x.to(torch.float8_e4m3fn)")


def test_a_class_at_a_tie_may_come_out_as_any_other() -> None:
    cases = cases_of(model("return x.argmax(1).to(torch.uint8)", "[torch.randn(64, 10)]"))
    assert not sensitivity.coded(made(cases)[0].expected[0])
    # It takes the last of equal values.
    honest = refusals(cases, lambda m, x: (9 - x.flip(1).argmax(1)).to(torch.uint8))
    assert honest == {}
    assert refusals(cases, lambda m, x: x.argmin(1).to(torch.uint8), first=True)


GROUPED = f"""{HEAD}
class Model(nn.Module):
    def forward(self, x, packed, scale, group_size, zero):
        codes = torch.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1).float()
        wide = (codes - zero).reshape(packed.shape[0], -1, group_size)
        return x @ (wide * scale[..., None]).reshape(packed.shape[0], -1).t()


def get_inputs():
    packed = torch.randint(0, 256, (24, 64), dtype=torch.uint8)
    return [torch.randn(5, 128), packed, 0.01 + 0.001 * torch.rand(24, 8), 16, 8]
"""


def test_codes_vary_boldly_beside_a_size_of_groups() -> None:
    cases = Cases(build(task_of(GROUPED)), plan(task_of(GROUPED), "search", 1, 5), 5)
    keys: list[InputSetKey] = [key for key in cases.keys if key.family == QUANTISED]
    found = [cases.get(key) for key in keys]
    assert len(found) == 2 and all(case is not None for case in found), cases.skipped
    for case in found:
        assert case is not None and case.args[3:] == [16, 8]
        assert bool((case.args[2] == 0).any()), "some scales are zero in a bold draw"


def test_one_quantised_draw_keeps_the_numbers_of_a_call() -> None:
    free = GROUPED.replace("-1, group_size)", "-1, 16)")
    cases = Cases(build(task_of(free)), plan(task_of(free), "search", 1, 5), 5)
    first, second = (cases.get(key) for key in cases.keys if key.family == QUANTISED)
    assert first is not None and second is not None
    assert first.args[4] != 8 and first.key.told and second.args[4] == 8 and not second.key.told


@pytest.mark.parametrize("zero", [7, 8])
def test_words_that_repeat_one_zero_point_stay_quantised(zero: int) -> None:
    word = int.from_bytes(bytes([zero * 17] * 4), "little", signed=True)
    source = model(
        "return x @ (((q[:, None] >> self.shifts[:, None]) & 15).reshape(16, 8)"
        " - ((z >> self.shifts) & 15).reshape(8)).float() * scale",
        f"[torch.randn(4, 16), torch.randint(-2**31, 2**31 - 1, (2, 8), {INT32}),"
        f" torch.full((1, 1), {word}, {INT32}), torch.rand(8) + 0.5]",
        f"self.register_buffer('shifts', torch.arange(0, 32, 4, {INT32}))",
        "x, q, z, scale",
    )
    found = operands_of(build(task_of(source))).inputs
    assert {n: operand.role for n, operand in found.items()} == {
        1: "packed",
        2: "packed",
        3: "scale",
    }
