"""Weight sets: what changes, what must not, and kernels that do not notice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dvk.harness.checking.weight_sets import INTEGERS, WeightSets
from tests.harness.problems import cases_of, judged, made, model, refusals


class Mixed(nn.Module):
    """One of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.tied = nn.Linear(16, 16, bias=False)
        self.tied.weight = self.linear.weight
        self.norm = nn.BatchNorm1d(16)
        self.causal = nn.Parameter(torch.randn(16, 16).tril())
        self.zero = nn.Parameter(torch.zeros(16, 16))
        self.temperature = nn.Parameter(torch.tensor(2.3))
        self.narrow = nn.Parameter(torch.randn(16).half())
        self.register_buffer("mask", torch.ones(16, 16).tril())
        self.register_buffer("steps", torch.arange(4))
        self.register_buffer("hidden", torch.randn(3), persistent=False)


@pytest.fixture
def module() -> Mixed:
    torch.manual_seed(5)
    return Mixed()


@pytest.mark.parametrize("number", [1, 2, INTEGERS])
def test_a_set_loads_and_changes_parameters_and_statistics_only(module: Mixed, number: int) -> None:
    before = {name: value.clone() for name, value in module.state_dict().items()}
    hidden = module.hidden.clone()
    state = WeightSets(module, 7).state(number)
    module.load_state_dict(state)
    changed = {
        name for name, value in module.state_dict().items() if not torch.equal(value, before[name])
    }
    assert changed >= {
        "linear.weight",
        "linear.bias",
        "norm.running_var",
        "zero",
        "causal",
        "narrow",
        "temperature",
    }
    assert changed >= {"norm.weight"} or number == INTEGERS
    assert not changed & {"mask", "steps", "norm.num_batches_tracked"} and torch.equal(
        hidden, module.hidden
    )
    assert all(
        state[name].dtype == before[name].dtype and bool(state[name].isfinite().all())
        for name in before
    )
    assert torch.equal(state["tied.weight"], state["linear.weight"]), "tied parameters stay tied"
    assert torch.equal(state["causal"], state["causal"].tril()), "a pattern of zeros stays"
    assert float(state["norm.running_var"].min()) > 0 and float(state["norm.weight"].min()) > 0
    assert bool(state["zero"].any())


def test_randomised_sets_keep_magnitudes_and_signs(module: Mixed) -> None:
    state, native = WeightSets(module, 7).state(1), module.state_dict()
    ratio = state["linear.weight"] / native["linear.weight"]
    assert (
        0.5 < float(ratio.min())
        and float(ratio.max()) < 2
        and float((ratio - 1).abs().mean()) > 0.1
    )
    assert float(state["zero"].abs().max()) < 1


def test_integers_are_integers(module: Mixed) -> None:
    state = WeightSets(module, 7).state(INTEGERS)
    assert set(state["linear.weight"].unique().tolist()) == {-1, 0, 1}
    assert set(state["norm.running_var"].unique().tolist()) <= {1, 2}
    assert state["temperature"].item() == 2


def test_equal_seeds_give_equal_sets_and_others_do_not(module: Mixed) -> None:
    first, again, other = WeightSets(module, 7), WeightSets(module, 7), WeightSets(module, 8)
    assert torch.equal(first.state(1)["linear.weight"], again.state(1)["linear.weight"])
    assert not torch.equal(first.state(1)["linear.weight"], other.state(1)["linear.weight"])
    assert not torch.equal(first.state(1)["linear.weight"], first.state(2)["linear.weight"])


def test_what_is_written_to_the_module_later_leaves_set_zero_alone(module: Mixed) -> None:
    sets = WeightSets(module, 7)
    kept = sets.state(0)["linear.weight"].clone()
    with torch.no_grad():
        module.linear.weight.zero_()
    assert torch.equal(sets.state(0)["linear.weight"], kept)


def test_a_module_without_weights_has_one_set() -> None:
    sets = WeightSets(nn.ReLU(), 7)
    assert sets.count == 0 and sets.state(1) == {} and sets.effective(1) == 0


def test_a_set_that_leaves_the_domain_is_taken_back_and_said() -> None:
    init = "self.a = nn.Parameter(torch.full((64,), 0.97))"
    source = model("return x * self.a + torch.sqrt(1 - self.a ** 2)", "[torch.rand(32, 64)]", init)
    cases = cases_of(source)
    assert {case.key.weights for case in made(cases)} == {0}
    assert "NaN" in cases.skipped["weights 1"]
    assert torch.equal(cases.state(1)["a"], cases.state(0)["a"])


@pytest.mark.parametrize(
    ("name", "layer", "shape", "wrong"),
    [
        (
            "affine left out",
            "nn.LayerNorm(64)",
            "32, 64",
            lambda m, x: nn.functional.layer_norm(x, (64,)),
        ),
        ("bias left out", "nn.Linear(64, 32)", "32, 64", lambda m, x: x @ m.n.weight.t()),
        (
            "mean left out",
            "nn.BatchNorm1d(64).eval()",
            "32, 64",
            lambda m, x: x * (m.n.running_var + 1e-5).rsqrt() * m.n.weight + m.n.bias,
        ),
    ],
)
@pytest.mark.slow
def test_what_weights_as_constructed_would_hide(
    name: str, layer: str, shape: str, wrong: object
) -> None:
    source = model("return self.n(x)", f"[torch.randn({shape})]", f"self.n = {layer}")
    cases = cases_of(source)
    assert refusals(cases, lambda m, x: m.n(x)) == {}
    assert refusals(cases, wrong)  # type: ignore[arg-type]


def test_weights_written_into_a_kernel_or_folded_once_are_found() -> None:
    cases = cases_of(
        model("return self.n(x)", "[torch.randn(32, 64)]", "self.n = nn.Linear(64, 32)"),
        num_seeds=3,
    )
    weight, bias = cases.state(0)["n.weight"], cases.state(0)["n.bias"]
    order = made(cases)
    assert order[0].key.weights == 0 and order[-1].key.weights == 0, (
        "the weights come back at the end"
    )
    outcomes = {
        case.key.weights: judged(cases, case, lambda m, x: x @ weight.t() + bias).ok
        for case in order
    }
    assert outcomes == {0: True, 1: False, 2: False, INTEGERS: False}
    folded: list[torch.Tensor] = []

    def fold_once(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if not folded:
            folded.append(m.get_submodule("n").weight.detach().t().clone())
        return x @ folded[0] + m.get_submodule("n").bias

    assert refusals(cases, fold_once)
