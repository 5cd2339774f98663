"""Precision classes: kernels that compute in a coarser type are refused, and honest ones that round elsewhere are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from dvk.harness.checking.compare import ExpectedLeaf, errors, scales
from dvk.harness.checking.rounding_noise import with_low_bits_cleared
from dvk.harness.checking.tolerance import UNKNOWN, Sums, class_of
from tests.harness.problems import Function, cases_of, judged, made, model, refusals


def tf32(x: torch.Tensor) -> torch.Tensor:
    return with_low_bits_cleared(x, 11)


def half(x: torch.Tensor) -> torch.Tensor:
    return x.half().float()


def bfloat(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


COARSE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tf32": tf32,
    "float16": half,
    "bfloat16": bfloat,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_who_rounds_less_often_than_the_reference_is_right(dtype: torch.dtype) -> None:
    """A fused kernel keeps in float32 what eager stores in 16 bits after every operator."""
    torch.manual_seed(0)
    drawn = (
        torch.randn(4, 128, 32, 32),
        torch.randn(96, 128, 3, 3) / 34,
        torch.randn(64, 96, 1, 1) / 10,
    )
    x, w1, w2 = (t.to(dtype).double() for t in drawn)

    def network(
        stored: Callable[[torch.Tensor], torch.Tensor],
        between: Callable[[torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        inner = stored(torch.relu(between(between(F.conv2d(x, w1, padding=1)) * 1.7)))
        return stored(torch.relu(between(between(F.conv2d(inner, w2)) - 1)))

    def rounded(t: torch.Tensor) -> torch.Tensor:
        return t.to(dtype).double()

    truth = network(lambda t: t, lambda t: t)
    want = ExpectedLeaf("output", truth, scale=scales(truth)[0])
    own = errors(network(rounded, rounded), truth, want)
    admitted = class_of("half", {str(dtype).removeprefix("torch.")}).tolerance(own, UNKNOWN, Sums())
    assert errors(network(rounded, lambda t: t), truth, want).within(admitted)


@pytest.mark.parametrize("coarse, fits", [(tf32, True), (bfloat, False)])
def test_in_tf32_a_batch_norm_may_be_folded_into_its_convolution(
    coarse: Callable[[torch.Tensor], torch.Tensor], fits: bool
) -> None:
    """Both err by as much, in other places: the worst of many elements, where a row is small by luck, is far beyond the typical one."""
    torch.manual_seed(0)
    x, w1, w2 = (
        torch.randn(4, 128, 32, 32),
        torch.randn(96, 128, 3, 3) / 34,
        torch.randn(64, 96, 1, 1) / 10,
    )
    gain, centre = torch.rand(96, 1, 1) * 2 + 0.5, torch.randn(96, 1, 1) / 5

    def network(rounded: Callable[[torch.Tensor], torch.Tensor], folded: bool) -> torch.Tensor:
        def conv(y: torch.Tensor, w: torch.Tensor, padding: int = 0) -> torch.Tensor:
            return F.conv2d(
                rounded(y.float()).double(), rounded(w.float()).double(), padding=padding
            )

        inner = conv(x, w1 * gain[..., None], 1) if folded else conv(x, w1, 1) * gain
        return torch.relu(conv(torch.relu(inner + centre), w2) - 1)

    truth = network(lambda t: t, False)
    want = ExpectedLeaf("output", truth, scale=scales(truth)[0])
    own, lower = (
        errors(network(tf32, False), truth, want),
        errors(network(lambda t: with_low_bits_cleared(t, 8), False), truth, want),
    )
    admitted = class_of("tf32", set()).tolerance(own, lower, Sums(elements=truth.numel()))
    assert errors(network(coarse, True), truth, want).within(admitted) is fits


def one_by_one(x: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension, one term after another in one accumulator of x's type."""
    total = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for i in range(x.shape[-1]):
        total = total + x[..., i]
    return total


def product(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """a @ b, one term after another in one accumulator."""
    a, b = a.to(dtype), b.to(dtype)
    total = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k : k + 1]
    return total.float()


def softmax(
    x: torch.Tensor, exp: Callable = torch.exp, total: Callable = lambda e: e.sum(-1)
) -> torch.Tensor:
    e = exp(x - x.amax(-1, keepdim=True))
    return e / total(e)[..., None]


def quick_exp(x: torch.Tensor) -> torch.Tensor:
    """2ⁿ times a polynomial of degree six."""
    scaled = x.clamp(-200, 200) * 1.4426950408889634
    n = scaled.round().clamp(-126, 126)
    f = (scaled - n) * 0.6931471805599453
    p = torch.ones_like(f)
    for c in (6, 5, 4, 3, 2, 1):
        p = 1 + f * p / c
    return torch.ldexp(p, n.int())


def norm(
    model_: torch.nn.Module, x: torch.Tensor, total: Callable = lambda e: e.sum(-1)
) -> torch.Tensor:
    layer = model_.get_submodule("n")
    mean = total(x)[..., None] / x.shape[-1]
    variance = total((x - mean).square())[..., None] / x.shape[-1]
    return (x - mean) * torch.rsqrt(variance + 1e-5) * layer.weight + layer.bias


def norm_in_one_pass(model_: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    layer = model_.get_submodule("n")
    mean = x.mean(-1, keepdim=True)
    variance = (x.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * layer.weight + layer.bias


def matmul_problem(draw: str, k: int) -> tuple[str, dict[str, Function], dict[str, Function]]:
    impostors: dict[str, Function] = {
        f"{n} inputs": lambda m, a, b, c=c: c(a) @ c(b) for n, c in COARSE.items()
    }
    impostors["bfloat16 throughout"] = lambda m, a, b: bfloat(bfloat(a) @ bfloat(b))
    impostors["float16 stored"] = lambda m, a, b: half(a @ b)
    impostors["float16 accumulator"] = lambda m, a, b: product(a, b, torch.float16)
    honest: dict[str, Function] = {
        "split": lambda m, a, b: sum(a[:, i::8] @ b[i::8] for i in range(8)),
        "one by one": lambda m, a, b: product(a, b, torch.float32),
        "float64": lambda m, a, b: (a.double() @ b.double()).float(),
    }
    return (
        model("return a @ b", f"[torch.{draw}(48, {k}), torch.{draw}({k}, 48)]", arguments="a, b"),
        impostors,
        honest,
    )


def convolution_problem(channels: int) -> tuple[str, dict[str, Function], dict[str, Function]]:
    def run(cast: Callable[[torch.Tensor], torch.Tensor]) -> Function:
        return lambda m, x: F.conv2d(cast(x), cast(m.c.weight), m.c.bias, padding=1)

    def unfolded(m, x):
        columns = m.c.weight.flatten(1) @ F.unfold(x, 3, padding=1)
        return columns.reshape(len(x), -1, *x.shape[2:]) + m.c.bias[:, None, None]

    impostors = {f"{n} inputs": run(c) for n, c in COARSE.items()}
    impostors["bfloat16 throughout"] = lambda m, x: bfloat(run(bfloat)(m, x))
    impostors["float16 stored"] = lambda m, x: half(m.c(x))
    source = model(
        "return self.c(x)",
        f"[torch.rand(3, {channels}, 20, 20)]",
        f"self.c = nn.Conv2d({channels}, 16, 3, padding=1)",
    )
    return source, impostors, {"unfolded": unfolded}


def softmax_problem(n: int) -> tuple[str, dict[str, Function], dict[str, Function]]:
    impostors: dict[str, Function] = {
        f"{name} inputs": lambda m, x, c=c: softmax(c(x)) for name, c in COARSE.items()
    }
    impostors["bfloat16 throughout"] = lambda m, x: bfloat(softmax(bfloat(x)))
    impostors["float16 stored"] = lambda m, x: half(softmax(x))
    impostors["float16 accumulator"] = lambda m, x: softmax(
        x, total=lambda e: one_by_one(e.half()).float()
    )
    honest: dict[str, Function] = {
        "quick exponential": lambda m, x: softmax(x, quick_exp),
        "one by one": lambda m, x: softmax(x, total=one_by_one),
    }
    return model("return torch.softmax(x, -1)", f"[torch.randn(24, {n})]"), impostors, honest


def norm_problem(n: int) -> tuple[str, dict[str, Function], dict[str, Function]]:
    impostors: dict[str, Function] = {
        f"{name} inputs": lambda m, x, c=c: norm(m, c(x)) for name, c in COARSE.items()
    }
    impostors["bfloat16 throughout"] = lambda m, x: bfloat(norm(m, bfloat(x)))
    impostors["float16 stored"] = lambda m, x: half(norm(m, x))
    impostors["float16 accumulator"] = lambda m, x: norm(
        m, x, lambda e: one_by_one(e.half()).float()
    )
    honest: dict[str, Function] = {
        "one by one": lambda m, x: norm(m, x, one_by_one),
        "one pass": norm_in_one_pass,
    }
    return (
        model("return self.n(x)", f"[torch.randn(24, {n})]", f"self.n = nn.LayerNorm({n})"),
        impostors,
        honest,
    )


PROBLEMS = {
    "matmul positive 256": matmul_problem("rand", 256),
    "matmul positive 4096": matmul_problem("rand", 4096),
    "matmul normal 256": matmul_problem("randn", 256),
    "matmul normal 2048": matmul_problem("randn", 2048),
    "convolution 3": convolution_problem(3),
    "convolution 64": convolution_problem(64),
    "softmax 64": softmax_problem(64),
    "softmax 2048": softmax_problem(2048),
    "layer norm 64": norm_problem(64),
    "layer norm 2048": norm_problem(2048),
}


LARGE = [name for name in PROBLEMS if int(name.split()[-1]) >= 2048]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in PROBLEMS],
)
@pytest.mark.slow
def test_precision_impostors_are_refused_and_honest_kernels_are_not(name: str) -> None:
    source, impostors, honest = PROBLEMS[name]
    cases = cases_of(source)
    assert max(case.separation for case in made(cases)) == cases.separation > 10, (
        "a kernel in TF32 is ten times beyond what is admitted"
    )
    for label, function in honest.items():
        assert {k: o.text for k, o in refusals(cases, function).items()} == {}, label
    for label, function in impostors.items():
        assert refusals(cases, function, first=True), f"{label} passes"


@pytest.mark.slow
def test_positive_inputs_alone_would_let_the_impostor_pass() -> None:
    """K = 16384 values in [0, 1): the sum hides TF32's rounding; zero-mean inputs show it thirty times over."""
    source, impostors, _ = matmul_problem("rand", 16384)
    cases = cases_of(source)
    natively = [case for case in made(cases) if case.key.family == "native"]
    assert all(judged(cases, case, impostors["tf32 inputs"]).ok for case in natively)
    refused = refusals(cases, impostors["tf32 inputs"])
    assert "native zero_mean w0" in refused
    (zero_mean,) = [case for case in made(cases) if case.key.family == "zero_mean"]
    assert refused["native zero_mean w0"].typical > 20 * zero_mean.expected[0].admitted.typical


HALVES = {
    "product": model(
        "return a @ b",
        "[torch.randn(48, 512).half(), torch.randn(512, 48).half()]",
        arguments="a, b",
    ),
    "softmax": model("return torch.softmax(x, -1)", "[torch.randn(48, 512).half()]"),
}


@pytest.mark.parametrize("name", HALVES)
def test_float16_admits_float16_and_refuses_bfloat16(name: str) -> None:
    cases = cases_of(HALVES[name], precision="half")

    def run(m: torch.nn.Module, *given: torch.Tensor) -> torch.Tensor:
        wide = [t.float() for t in given]
        return wide[0] @ wide[1] if len(wide) == 2 else softmax(wide[0])

    assert refusals(cases, lambda m, *given: run(m, *given).half()) == {}
    assert refusals(
        cases, lambda m, *given: run(m, *[t.bfloat16() for t in given]).bfloat16().half()
    )
    if name == "product":
        assert refusals(cases, lambda m, a, b: product(a, b, torch.float16).half()), (
            "a float16 accumulator"
        )
