"""Input sets: which are tried in which order, what is left out and why, and who passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dvk.harness.checking.case_keys import LARGE_BYTES, plan, reduced
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.input_families import ARGUED, FAMILIES
from dvk.harness.checking.rounding_noise import RoundingNoise
from dvk.harness.checking.weight_sets import INTEGERS
from dvk.harness.processes.referee import first_cases
from dvk.harness.session import memory_estimate
from dvk.harness.transport import memory_budget
from dvk.harness.transport.calls import call, describe, in_mode
from dvk.records import ShapeVariant
from dvk.tasks.build import build
from tests.harness.problems import cases_of, made, model, refusals, task_of

BATCHES = [
    ShapeVariant(name="batch+3", changes=(("x", 0, 35),)),
    ShapeVariant(name="batch=1", changes=(("x", 0, 1),)),
]
LINEAR = model("return self.n(x)", "[torch.rand(32, 64)]", "self.n = nn.Linear(64, 32)")


# ---------------------------------------------------------------- plan


def test_each_tier_looks_further() -> None:
    task = task_of(LINEAR, variants=BATCHES)
    tiers = {tier: plan(task, tier, 3, 5) for tier in ("smoke", "search", "claim")}
    assert [len(keys) for keys in tiers.values()] == [5, 19, 33]
    for keys in tiers.values():
        assert (keys[0].variant, keys[0].family, keys[0].weights) == ("native", "native", 0)
        assert len({key.seed for key in keys}) == len(keys), "no value set twice"
        assert {key.variant for key in keys} == {"native", "batch+3", "batch=1"}
    assert {key.family for key in tiers["search"]} == {"native", *FAMILIES}
    assert (
        sum(
            key.family == "native" and key.variant == "native" and not key.other_mode
            for key in tiers["search"]
        )
        == 3
    )
    assert {key.weights for key in tiers["claim"]} == {0, 1, 2, INTEGERS}
    assert len(plan(task, "search", 3, 5, brief=True)) == 17
    assert all(key.backward for key in plan(task, "smoke", 1, 5, backward=True))


@pytest.mark.parametrize(("highest", "reduced_size"), [(4096, False), (64, True), (100_000, True)])
@pytest.mark.slow
def test_a_batch_is_not_made_smaller_than_what_indexes_it(
    highest: int, reduced_size: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At such an index a GPU would end the process; those that fit, or are none, are no reason."""
    inputs = f"[torch.randn(4096, 256), torch.randint({highest - 1}, {highest}, (300,))]"
    source = model(
        "return x[at % x.shape[0]]", inputs, arguments="x, at"
    )  # that would run in any batch
    task = task_of(source, variants=[ShapeVariant(name="batch+3", changes=(("x", 0, 4099),))])
    cases = Cases(build(task), plan(task, "search", 1, 5), 5)
    sizes = {case.inputs[0].shape[0] for case in made(cases) if case.key.family != "native"}
    assert (sizes == {4096}) is not reduced_size


def test_referees_that_share_a_gpu_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 80 << 30))
    assert memory_budget.budgets("cuda", 1) == (1 << 30, 1 << 30), "as the estimate counts"
    assert sum(memory_budget.budgets("cuda", 1)) == memory_estimate.KEPT_BYTES
    assert memory_budget.budgets("cuda", 40) == (512 << 20, 256 << 20)


def test_families_of_a_large_problem_come_in_a_smaller_batch() -> None:
    variants = [ShapeVariant(name="batch+3", changes=(("x", 0, 4099),))]
    task = task_of(model("return torch.relu(x)", "[torch.randn(4096, 256)]"), variants=variants)
    small = reduced(task)
    assert small is not None
    ((_, _, batch),) = small.changes
    assert (
        batch % 2 == 1
        and LARGE_BYTES["cpu"] / 3 < batch * 256 * 8 <= LARGE_BYTES["cpu"] / 2
        and small.name == f"batch={batch}"
    )
    cases = Cases(build(task), plan(task, "search", 1, 5), 5)
    shapes = {case.key.family: tuple(case.inputs[0].shape) for case in reversed(made(cases))}
    assert shapes["native"] == (4096, 256) and shapes["integers"] == shapes["large"] == (batch, 256)
    assert reduced(task_of(LINEAR, variants=BATCHES)) is None
    # Inputs of zero mean leave out the family that would come first in the smaller batch: it is played all the same.
    assert cases.get(next(key for key in cases.keys if key.variant == small.name)) is None
    assert (
        {case.key.variant for case in first_cases(cases)}
        == {case.key.variant for case in made(cases)}
        == {"native", "batch+3", small.name}
    )


@pytest.mark.slow
def test_a_reference_that_refuses_the_smaller_batch_gets_the_native_one() -> None:
    variants = [ShapeVariant(name="batch+3", changes=(("x", 0, 4099),))]
    source = model("assert len(x) > 4000\n        return torch.relu(x)", "[torch.randn(4096, 256)]")
    task = task_of(source, variants=variants)
    cases = Cases(build(task), plan(task, "search", 1, 5), 5)
    assert {case.key.variant for case in made(cases)} == {"native", "batch+3"}
    assert {case.key.family for case in made(cases)} == {"native", *FAMILIES} - {
        "zero_mean",
        *ARGUED,
    }


# ---------------------------------------------------------------- left out, and why


@pytest.mark.parametrize(
    ("forward", "inputs", "family", "reason"),
    [
        ("return torch.log(x)", "[torch.rand(64, 32) + 0.1]", "zero_mean", "NaN or infinity"),
        ("return torch.exp(x)", "[torch.randn(64, 32)]", "large", "NaN or infinity"),
        (
            "return torch.linalg.cholesky(x)",
            "[(lambda q: q @ q.T + 64 * torch.eye(64) + 9)(torch.randn(64, 64))]",
            "zero_mean",
            "raises",
        ),
        (
            "return torch.argmax(x, 1)",
            "[torch.randn(64, 32)]",
            "integers",
            "equal values make indices arbitrary",
        ),
        (
            "return x.gather(1, x.topk(4).indices.flip(1)) * torch.arange(1, 5)",
            "[torch.randn(64, 32)]",
            "large",
            "",
        ),
        ("return torch.floor(x * 10 + 0.3 - 0.3)", "[torch.rand(64, 32)]", "integers", "jump"),
        ("return torch.relu(x)", "[torch.randn(64, 32)]", "zero_mean", "zero mean already"),
        (
            "return (x.softmax(1) * (x.log_softmax(1) - x.flip(0).log_softmax(1))).sum(1)",
            "[torch.randn(64, 32)]",
            "small",
            "inexact",
        ),
    ],
)
@pytest.mark.slow
def test_an_input_family_unfit_for_judging_is_skipped(
    forward: str, inputs: str, family: str, reason: str
) -> None:
    cases = cases_of(model(forward, inputs))
    seen = {case.key.family for case in made(cases)}
    assert "native" in seen and (family in seen) == (reason == "")
    assert reason in cases.skipped.get(family, "")
    assert refusals(cases, lambda m, x: m(x)) == {}


def test_inputs_that_are_never_negative_stay_so_where_they_must() -> None:
    """The first input keeps its sign, the second is still drawn again."""
    cases = cases_of(
        model(
            "return torch.sqrt(x) * y",
            "[torch.rand(64, 32), torch.rand(64, 32) - 0.2]",
            arguments="x, y",
        )
    )
    (case,) = [case for case in made(cases) if case.key.family == "zero_mean"]
    native = made(cases)[0]
    assert float(case.inputs[0].min()) >= 0 and abs(float(case.inputs[1].mean())) < 0.05 < float(
        native.inputs[1].mean()
    )


def test_integers_make_linear_layers_exact() -> None:
    (case,) = [case for case in made(cases_of(LINEAR)) if case.key.family == "integers"]
    assert case.key.weights == INTEGERS and torch.equal(
        case.expected[0].same, case.expected[0].same.round()
    )
    assert case.expected[0].own.worst == 0


def test_random_numbers_are_compared_mask_by_mask_without_a_truth() -> None:
    cases = cases_of(
        model("return F.dropout(F.gelu(x), 0.3)", "[torch.randn(64, 32)]"), stochastic=True
    )
    assert made(cases)[0].expected[0].truth is None and made(cases)[0].separation > 5
    for case in made(cases):
        result = call(cases.built.model, case.args, case.kwargs, case.seed)
        assert cases.check(case, *describe(result)).ok
        other = call(cases.built.model, case.args, case.kwargs, case.seed + 1)
        assert not cases.check(case, *describe(other)).ok


# ---------------------------------------------------------------- who passes

WRONG: dict[str, tuple[str, Any]] = {
    "softmax without the maximum": (
        model("return torch.softmax(x, -1)", "[torch.randn(32, 64)]"),
        lambda m, x: x.exp() / x.exp().sum(-1, keepdim=True),
    ),
    "norm without epsilon": (
        model(
            "return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-7)",
            "[torch.randn(32, 64)]",
        ),
        lambda m, x: x * torch.rsqrt(x.square().mean(-1, keepdim=True)),
    ),
    "last term left out": (
        model(
            "return (x * self.w).sum(1)",
            "[torch.randn(64, 2048)]",
            "self.w = nn.Parameter(torch.ones(2048)); self.w.data[-1] = 1e-6",
        ),
        lambda m, x: (x[:, :-1] * m.w[:-1]).sum(1),
    ),
    "dead negative half": (model("return torch.relu(x)", "[torch.rand(64, 32)]"), lambda m, x: x),
    "clipped": (
        model("return x * 2", "[torch.randn(64, 32)]"),
        lambda m, x: (x * 2).clamp(-60, 60),
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.slow
def test_what_native_inputs_do_not_show(name: str) -> None:
    source, wrong = WRONG[name]
    cases = cases_of(source)
    refused = refusals(cases, wrong)
    assert refused and not any(where.split()[1].startswith("w") for where in refused), (
        "natively it passes"
    )
    assert refusals(cases, lambda m, x: m(x)) == {}


HONEST = {
    "jumps": model(
        "s = x.abs().amax(-1, keepdim=True) / 127\n        return torch.round(x / s) * s",
        "[torch.randn(64, 512)]",
    ),
    "norm": model("return self.n(x)", "[torch.rand(32, 96)]", "self.n = nn.LayerNorm(96)"),
    "cancelled": model(
        "y = self.n(x).amax(1, keepdim=True)\n        return F.gelu(y - y.mean(1, keepdim=True))",
        "[torch.rand(32, 64)]",
        "self.n = nn.Linear(64, 64)",
    ),
    "gelu by hand": model(
        "return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))",
        "[torch.randn(64, 512)]",
    ),
    "attention": model(
        "return F.scaled_dot_product_attention(x, x, x, is_causal=True)",
        "[torch.randn(2, 2, 40, 16)]",
    ),
    "train": model("return self.n(x)", "[torch.rand(16, 8, 9, 9)]", "self.n = nn.BatchNorm2d(8)"),
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("seed", [70, 71, 72, 73])
@pytest.mark.slow
def test_rounding_in_other_places_is_never_refused(name: str, seed: int) -> None:
    """The reference with every operator's result off by up to a unit: twice what an honest kernel's rounding does."""
    cases = cases_of(HONEST[name])
    for case in made(cases):
        cases.use(case.key.weights)
        with in_mode(cases.built.model, case.key.other_mode):
            result = call(
                cases.built.model, case.args, case.kwargs, case.seed, under=RoundingNoise(seed)
            )
        cases.use(case.key.weights)
        outcome = cases.check(case, *describe(result))
        assert outcome.ok, outcome.text


def test_a_step_is_excused_at_the_few_elements_on_an_edge_only() -> None:
    cases = cases_of(HONEST["jumps"])

    def by_reciprocal(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        largest = x.abs().amax(-1, keepdim=True)
        return torch.round(x * (127 / largest)) * (largest / 127)

    def rounded_down(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        step = x.abs().amax(-1, keepdim=True) / 127
        return torch.floor(x / step) * step

    assert refusals(cases, by_reciprocal) == {}
    assert refusals(cases, rounded_down, first=True)


def test_running_statistics_are_part_of_the_result() -> None:
    cases = cases_of(HONEST["train"])
    case = made(cases)[0]
    good = {
        name: value * (1 + 1e-7) if value.is_floating_point() else value
        for name, value in case.buffers.items()
    }
    assert cases.check_buffers(case, good).ok
    stale = cases.check_buffers(case, cases.initial(case.key.weights))
    assert not stale.ok and "`n.running_mean` differs" in str(stale.text)
    assert "does not update" in str(cases.check_buffers(case, {}).text)
    assert cases.check_buffers(case, {**good, "extra": torch.ones(3)}).ok
    assert (
        float(cases.initial(0)["n.num_batches_tracked"])
        == 0
        == float(dict(cases.built.model.named_buffers())["n.num_batches_tracked"])
    )


# ---------------------------------------------------------------- describing


@pytest.mark.slow
def test_who_is_right_where_the_reference_is_not_is_right() -> None:
    """torch sums 131,072 exponentials in float32: where a stray stands out it misses that by more than is admitted elsewhere."""
    task = task_of(model("return torch.softmax(x, -1)", "[torch.rand(8, 131072)]"))
    cases = Cases(build(task), plan(task, "search", 1, 1), 1)
    for number in (2, 3):
        case = cases.fresh(number)
        right = torch.softmax(case.args[0].double(), -1).float()
        assert cases.check(case, [right], case.spec_text).ok
        wrong = right.clone()
        wrong[0, right[0].argmax()] *= 1.001
        assert not cases.check(case, [wrong], case.spec_text).ok
