"""Comparison of outputs: errors are found and described, and precision classes are distinguished."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from dvk.harness.checking.compare import (
    SHARE,
    TINY,
    ExpectedLeaf,
    errors,
    row_length,
    same_bits,
    scales,
    structure,
    values,
)
from dvk.harness.checking.rounding_noise import with_low_bits_cleared
from dvk.harness.checking.tolerance import UNKNOWN, Sums, class_of
from dvk.harness.transport.calls import describe
from tests.harness.problems import Function, cases_of, judged, made, model, refusals


def expected(
    truth: torch.Tensor, precision: str = "fp32", dtype: torch.dtype = torch.float32
) -> ExpectedLeaf:
    """An output that the reference computed exactly, up to rounding it to `dtype`."""
    same = truth.to(dtype)
    scale, rms, finite = scales(same)
    want = ExpectedLeaf("y", same, truth, scale, rms, finite=finite, wide=precision == "fp64")
    own = errors(same, truth, want)
    want.admitted = class_of(precision, {str(dtype).removeprefix("torch.")}).tolerance(
        own, UNKNOWN, Sums()
    )
    return want


# ---------------------------------------------------------------- outside


def difference(got: object, want: object, exact_strides: bool = False) -> str:
    leaves, text = describe(want)
    found = structure(
        *describe(got),
        [ExpectedLeaf(f"leaf{i}", leaf) for i, leaf in enumerate(leaves)],
        text,
        exact_strides=exact_strides,
    )
    return found.text if found is not None else ""


def test_equal_structures_agree_whatever_order_a_dictionary_has() -> None:
    x = torch.randn(3, 4)
    assert (
        difference({"a": x, "b": (x, 1, None, "s", [])}, {"b": (x, 1, None, "s", []), "a": x}) == ""
    )
    assert difference(x.t()[:, :1], torch.randn(4, 1)) == "", (
        "the stride of a dimension with one element means nothing"
    )


def test_a_contiguous_output_is_as_good_as_one_with_the_references_strides() -> None:
    contiguous, transposed, channels_last = (
        torch.ones(2, 3, 4, 5),
        torch.ones(5, 4, 3, 2).permute(3, 2, 1, 0),
        torch.ones(2, 3, 4, 5),
    )
    channels_last = channels_last.contiguous(memory_format=torch.channels_last)
    assert not difference(contiguous, transposed) and not difference(contiguous, channels_last)
    assert "strides" in difference(contiguous, transposed, exact_strides=True)
    assert "strides" in difference(channels_last, contiguous) and "strides" in difference(
        channels_last, transposed
    )


@pytest.mark.parametrize(
    ("got", "want", "says"),
    [
        (None, torch.ones(2), "a NoneType instead of a tensor"),
        ([torch.ones(2)], (torch.ones(2),), "[*] instead of (*)"),
        ({"a": torch.ones(2)}, {"b": torch.ones(2)}, "{'a': *} instead of {'b': *}"),
        (torch.ones(2).half(), torch.ones(2), "dtype torch.float16 instead of torch.float32"),
        (torch.ones(1, 2), torch.ones(2), "shape (1, 2) instead of (2,)"),
        (torch.ones(4, 3).t(), torch.ones(3, 4), "strides (1, 3) instead of (4, 1)"),
        ((torch.ones(2), 1), (torch.ones(2), True), "int 1 instead of bool True"),
        ((torch.ones(2), 2.0), (torch.ones(2), 1.0), "float 2.0 instead of float 1.0"),
        (
            (torch.ones(2), object()),
            (torch.ones(2), torch.float32),
            "a object instead of a dtype torch.float32",
        ),
    ],
)
def test_what_differs_outside_is_said(got: object, want: object, says: str) -> None:
    assert says in difference(got, want)


# ---------------------------------------------------------------- elements


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30, 0.0])
def test_one_bad_element_among_many_is_found(bad: float) -> None:
    truth = torch.randn(300_001, dtype=torch.float64)
    want = expected(truth)
    got = truth.float()
    got[299_999] = bad
    found, wrong = values(got, want)
    assert (
        wrong is not None
        and "1 of 300,001 elements" in wrong.text
        and "worst at [299999]" in wrong.text
    )
    assert not found.within(want.admitted)


def test_a_row_of_small_values_is_not_hidden_behind_rows_of_large_ones() -> None:
    truth = torch.randn(64, 256, dtype=torch.float64)
    truth[7] *= 0.15
    truth[7, 3] = 0.1
    want = expected(truth)
    got = truth.float()
    got[7, 3] += 1.2e-5
    assert 1.2e-5 / want.rms < want.admitted.worst, "nothing, if measured by the whole output"
    _, wrong = values(got, want)
    assert wrong is not None and "[7, 3]" in wrong.text


def test_a_row_that_is_nothing_but_rounding_is_measured_by_the_whole_output() -> None:
    truth = torch.randn(64, 256, dtype=torch.float64)
    truth[7] = 0
    want = expected(truth)
    got = truth.float()
    got[7] = 1e-7
    assert values(got, want)[1] is None
    got[7] = 1e-4
    assert values(got, want)[1] is not None


def test_scales_follow_rows_down_to_a_share_of_the_whole() -> None:
    x = torch.ones(4, 8)
    x[1] = 0.5
    x[2] = 0
    found, rms, finite = scales(x)
    assert finite and found.tolist() == pytest.approx([1, 0.5, SHARE * rms, 1])
    assert scales(torch.zeros(3, 8))[1] == TINY
    assert scales(torch.zeros(0, 8))[2]
    x[3, 0] = float("inf")
    found, _, finite = scales(x)
    assert not finite and found[0] == 1 and torch.isfinite(found).all()
    assert [row_length(torch.Size(s)) for s in [(5, 8), (5, 3, 4), (2, 2), (), (3, 100, 2)]] == [
        8,
        12,
        4,
        1,
        200,
    ]


def test_the_typical_element_counts_where_no_single_one_is_far_off() -> None:
    truth = torch.randn(100_000, dtype=torch.float64)
    want = expected(truth)
    noise = 1 + 1.5e-5 * torch.randn(100_000, dtype=torch.float64)
    found, wrong = values((truth * noise.clamp(1 - 2e-5, 1 + 2e-5)).float(), want)
    assert (
        found.worst <= want.admitted.worst and wrong is not None and "typical element" in wrong.text
    )


def test_zeros_agree_with_zeros_only() -> None:
    want = expected(torch.zeros(8, dtype=torch.float64))
    assert values(torch.zeros(8), want)[1] is None
    assert values(torch.full((8,), 1e-20), want)[1] is not None


def test_infinities_have_their_places_and_signs() -> None:
    truth = torch.randn(40, dtype=torch.float64)
    truth[3], truth[5] = float("inf"), float("nan")
    want = expected(truth)
    assert values(truth.float(), want)[1] is None
    for place, value in [(3, -float("inf")), (3, 1e30), (5, 0.0), (0, float("nan"))]:
        got = truth.float()
        got[place] = value
        _, wrong = values(got, want)
        assert wrong is not None and (
            "NaN or infinity differs at 1 of 40" in wrong.text or place == 0
        )


def test_exact_types_are_compared_exactly() -> None:
    want = ExpectedLeaf("i", torch.arange(6).reshape(2, 3))
    assert values(torch.arange(6).reshape(2, 3), want)[1] is None
    _, wrong = values(torch.tensor([[0, 1, 2], [3, 9, 5]]), want)
    assert (
        wrong is not None
        and "1 of 6 elements differ, first at [1, 1]: 9 instead of 4" in wrong.text
    )


def test_complex_outputs_are_compared_in_both_parts() -> None:
    truth = torch.randn(64, dtype=torch.complex128)
    want = expected(truth, dtype=torch.complex64)
    assert values(truth.to(torch.complex64), want)[1] is None
    assert values(truth.real.to(torch.complex64), want)[1] is not None


def test_same_bits_knows_nan_and_dtype() -> None:
    x = torch.tensor([1.0, float("nan")])
    assert same_bits(x, x.clone())
    assert not same_bits(x, torch.tensor([1.0, 2.0]))
    assert not same_bits(x, x.double())


# ---------------------------------------------------------------- precision classes, through every family


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
