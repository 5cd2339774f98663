"""Input sets besides other floating values: what is wrong there is refused, what is right is not, and what may be drawn is found out."""

from __future__ import annotations

import collections
import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.harness.checking.input_families import ARGUED, NONFINITE
from dvk.harness.processes.weight_rewrites import WAYS, all_ways, pack_recurrent, rewrite
from dvk.harness.supervision.memory_growth import Footprint, Outputs, growth
from dvk.harness.transport.calls import describe
from tests.harness.problems import cases_of, made, model, refusals

INF = float("inf")


def masked_mean(m: nn.Module, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return (x * (torch.arange(x.shape[1])[None] < n[:, None])[..., None]).sum(1) / n[:, None]


def loss(m: nn.Module, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    keep = t != -100
    each = torch.where(keep, -x.log_softmax(-1).gather(1, t.clamp(min=0)[:, None])[:, 0], 0)
    return each.sum() / keep.sum()


ARGUMENTS: dict[str, tuple[str, str, str, Any, Any]] = {
    "scale": (
        "return torch.relu(x) * a + 1",
        "[torch.randn(32, 64), 0.5]",
        "x, a",
        lambda m, x, a: torch.relu(x) * 0.5 + 1,
        lambda m, x, a: torch.relu(x) * a + 1,
    ),
    "sign": (
        "return torch.relu(x) * a + 1",
        "[torch.randn(32, 64), 0.5]",
        "x, a",
        lambda m, x, a: torch.relu(x) * abs(a) + 1,
        lambda m, x, a: 1 + a * x.clamp(min=0),
    ),
    "sizes": (
        "return torch.stack([part.amax(-1) for part in x.split(sizes, -1)])",
        "[torch.randn(32, 64), [8, 24, 32]]",
        "x, sizes",
        lambda m, x, sizes: torch.stack([part.amax(-1) for part in x.split([8, 24, 32], -1)]),
        lambda m, x, sizes: torch.stack([part.max(-1).values for part in x.split(sizes, -1)]),
    ),
    "count": (
        "return x.topk(k, -1).values.sum(-1)",
        "[torch.randn(32, 64), 8]",
        "x, k",
        lambda m, x, k: x.topk(8, -1).values.sum(-1),
        lambda m, x, k: x.sort(-1, True).values[:, :k].sum(-1),
    ),
    "flag": (
        "return x + y if add else x * y",
        "[torch.randn(32, 64), torch.randn(32, 64), True]",
        "x, y, add",
        lambda m, x, y, add: x + y,
        lambda m, x, y, add: torch.where(torch.tensor(add), x + y, x * y),
    ),
    "word": (
        "return x.abs() if how == 'abs' else x.square()",
        "[torch.randn(32, 64), 'square']",
        "x, how",
        lambda m, x, how: x * x,
        lambda m, x, how: x.abs() if how == "abs" else x * x,
    ),
    "absent": (
        "return x if b is None else x + b",
        "[torch.randn(32, 64), torch.randn(64)]",
        "x, b=None",
        lambda m, x, b: x + (torch.zeros(64) + 1 if b is None else b),
        lambda m, x, b: x if b is None else b + x,
    ),
    "mask": (
        "return x.masked_fill(~m, -1e9).softmax(-1)",
        "[torch.randn(4, 32, 32), torch.ones(4, 32, 32, dtype=torch.bool)]",
        "x, m",
        lambda _, x, m: x.softmax(-1),
        lambda _, x, m: torch.where(m, x, -1e9).softmax(-1),
    ),
    "mask of scores": (
        "return (x + m).softmax(-1)",
        "[torch.randn(4, 32, 32), torch.full((32, 32), float('-inf')).triu(1)]",
        "x, m",
        lambda _, x, m: (x + torch.full((32, 32), -INF).triu(1)).softmax(-1),
        lambda _, x, m: (m + x).softmax(-1),
    ),
    "lengths": (
        "return (x * (torch.arange(x.shape[1])[None] < n[:, None])[..., None]).sum(1) / n[:, None]",
        "[torch.randn(16, 32, 8), torch.full((16,), 32)]",
        "x, n",
        lambda m, x, n: x.mean(1),
        masked_mean,
    ),
    "ignored": (
        "return F.cross_entropy(x, t)",
        "[torch.randn(256, 30), torch.randint(0, 30, (256,))]",
        "x, t",
        lambda m, x, t: F.cross_entropy(x, t.clamp(min=0)),
        loss,
    ),
    "vocabulary": (
        "return self.n(t)",
        "[torch.randint(0, 8, (16, 16))]",
        "t",
        lambda m, t: m.get_submodule("n").weight[:8][t.clamp(max=7)],
        lambda m, t: m.get_submodule("n").weight[t],
    ),
    "padding": (
        "k = (t != 3)[..., None]\n        return (x * k).sum(1)",
        "[torch.randn(16, 32, 8), torch.randint(4, 9, (16, 32))]",
        "x, t",
        lambda m, x, t: x.sum(1),
        lambda m, x, t: (x * (t != 3)[..., None]).sum(1),
    ),
    "order": (
        "return torch.zeros(8, 4).index_add(0, i, x)",
        "[torch.randn(64, 4), torch.arange(64) // 8]",
        "x, i",
        lambda m, x, i: x.view(8, 8, 4).sum(1),
        lambda m, x, i: torch.zeros(8, 4).scatter_add(0, i[:, None].expand(64, 4), x),
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.slow
def test_arguments_other_than_the_example_s_are_computed_or_refused(name: str) -> None:
    forward, inputs, arguments, wrong, right = ARGUMENTS[name]
    init = "self.n = nn.Embedding(40, 8)" if name == "vocabulary" else "pass"
    cases = cases_of(model(forward, inputs, init, arguments))
    assert {case.key.family for case in made(cases)} & set(ARGUED), cases.skipped
    assert refusals(cases, right) == {}
    found = refusals(cases, wrong)
    assert found and all(any(family in text for family in ARGUED) for text in found), found


@pytest.mark.parametrize(
    ("forward", "inputs", "arguments"),
    [
        ("return table[i]", "[torch.randn(20, 8), torch.randint(0, 20, (64,))]", "table, i"),
        (
            "return torch.zeros(64).index_copy(0, i, x)",
            "[torch.randn(64), torch.randperm(64)]",
            "x, i",
        ),
        (
            "return torch.stack([s.sum(0) for s in x.split(n.tolist())])",
            "[torch.randn(24, 4), torch.tensor([4, 8, 12])]",
            "x, n",
        ),
    ],
)
@pytest.mark.slow
def test_what_only_happens_to_be_accepted_is_not_drawn(
    forward: str, inputs: str, arguments: str
) -> None:
    """Positions counted from the end, two values for one place, pieces that do not add up."""
    for seed in range(4):
        for case in made(cases_of(model(forward, inputs, arguments=arguments), seed=seed)):
            whole = case.inputs[1]
            assert int(whole.min()) >= 0
            if "index_copy" in forward:
                assert whole.unique().numel() == 64


NAN: dict[str, tuple[str, str, Any, Any]] = {
    "relu": (
        "return torch.relu(x)",
        "[torch.randn(64, 64)]",
        lambda m, x: torch.where(x > 0, x, 0.0),
        lambda m, x: torch.where(x < 0, 0.0, x),
    ),
    "chain": (
        "return torch.tanh(torch.exp(-x * x) * x) + x",
        "[torch.randn(64, 64)]",
        lambda m, x: (torch.tanh(torch.exp(-x * x) * x) + x).nan_to_num(0.0, INF, -INF),
        lambda m, x: x + torch.tanh(x * (-x * x).exp()),
    ),
    "mean": (
        "return x.mean(-1)",
        "[torch.randn(64, 64)]",
        lambda m, x: x.nanmean(-1),
        lambda m, x: x.sum(-1) / 64,
    ),
    "linear, relu": (
        "return torch.relu(self.n(x))",
        "[torch.randn(64, 64)]",
        lambda m, x: torch.fmax(m.get_submodule("n")(x), torch.zeros(())),
        lambda m, x: m.get_submodule("n")(x).clamp(min=0),
    ),
    "padding": (
        "return (x @ x.mT).masked_fill(torch.arange(32) > 2, -1e9).softmax(-1)",
        "[torch.randn(4, 32, 16)]",
        lambda m, x: ((x @ x.mT) * (torch.arange(32) <= 2) - 1e9 * (torch.arange(32) > 2)).softmax(
            -1
        ),
        lambda m, x: torch.where(torch.arange(32) > 2, -1e9, x @ x.mT).softmax(-1),
    ),
}


@pytest.mark.parametrize("name", NAN)
def test_what_is_not_finite_stays_so_and_nothing_else_becomes_so(name: str) -> None:
    forward, inputs, wrong, right = NAN[name]
    cases = cases_of(model(forward, inputs, "self.n = nn.Linear(64, 64)"))
    assert refusals(cases, right) == {}
    found = refusals(cases, wrong)
    assert any(family in text for family in NONFINITE for text in found), found
    assert "judge.finite_only" in str(next(iter(found.values())).text)


def test_products_may_spread_nan_as_their_algorithm_does() -> None:
    """Fewer multiplications, zeros left out, two layers folded into one."""

    def strassen(m: nn.Module, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        h = a.shape[0] // 2
        a, b = a.double(), b.double()
        top = (
            (a[:h, :h] + a[h:, h:]) @ (b[:h, :h] + b[h:, h:])
            + a[h:, h:] @ (b[h:, :h] - b[:h, :h])
            - (a[:h, :h] + a[:h, h:]) @ b[h:, h:]
        )
        top = top + (a[:h, h:] - a[h:, h:]) @ (b[h:, :h] + b[h:, h:])
        plain = a @ b
        return torch.cat([torch.cat([top, plain[:h, h:]], 1), plain[h:]]).float()

    def triangular(m: nn.Module, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.stack([a[i, : i + 1] @ b[: i + 1] for i in range(len(a))])

    def folded(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        n, o = m.get_submodule("n.0"), m.get_submodule("n.1")
        return (x.double() @ (o.weight.double() @ n.weight.double()).t()).float()

    square = "[torch.randn(32, 32), torch.randn(32, 32)]"
    assert refusals(cases_of(model("return a @ b", square, arguments="a, b")), strassen) == {}
    assert (
        refusals(cases_of(model("return torch.tril(a) @ b", square, arguments="a, b")), triangular)
        == {}
    )
    layers = "self.n = nn.Sequential(nn.Linear(32, 32, False), nn.Linear(32, 32, False))"
    assert (
        refusals(cases_of(model("return self.n(x)", "[torch.randn(32, 32)]", layers)), folded) == {}
    )


def test_the_other_mode_is_compared_where_it_makes_a_difference() -> None:
    norm = cases_of(
        model(
            "return self.n(x)",
            "[torch.randn(32, 8)]",
            "self.n = nn.BatchNorm1d(8).eval(); self.eval()",
        )
    )
    (other,) = [case for case in made(norm) if case.key.other_mode]
    assert refusals(norm, lambda m, x: m(x)) == {}
    fixed = refusals(
        norm, lambda m, x: F.batch_norm(x, m.n.running_mean, m.n.running_var, m.n.weight, m.n.bias)
    )  # type: ignore[arg-type]
    assert (
        list(fixed) == [f"{other.key.text} w{other.key.weights}"]
        and "in the other mode" in other.text
    )
    plain = cases_of(model("return self.n(x)", "[torch.randn(32, 8)]", "self.n = nn.Linear(8, 8)"))
    assert (
        not any(case.key.other_mode for case in made(plain))
        and "makes a difference" in plain.skipped["other mode"]
    )


@pytest.mark.parametrize("way", [way for way in WAYS if way != "load"])
def test_every_way_of_changing_weights_leaves_the_same_values(way: str) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    module[2].weight = module[0].weight
    values = {name: value + 1 for name, value in module.state_dict().items()}
    before = {
        name: (id(value), value.data_ptr(), value._version)
        for name, value in module.named_parameters()
    }
    assert rewrite(module, values, way)
    assert all(torch.equal(value, values[name]) for name, value in module.state_dict().items())
    assert module[2].weight is module[0].weight and isinstance(module[0].weight, nn.Parameter)
    after = {
        name: (id(value), value.data_ptr(), value._version)
        for name, value in module.named_parameters()
    }
    assert all(before[name] != after[name] for name in before), "it leaves a trace"
    assert not rewrite(module, {"elsewhere": torch.zeros(1)}, way)


def test_each_candidate_gets_all_weight_changes_in_a_different_order() -> None:
    orders = [
        [next(order) for _ in range(1 + len(WAYS))] for order in (all_ways() for _ in range(12))
    ]
    assert all(order[0] == "load" and set(order[1:]) == set(WAYS) for order in orders)
    assert len({tuple(order) for order in orders}) > 1


@pytest.mark.parametrize(
    ("each", "until", "grows"),
    [(1 << 20, 1000, True), (1 << 20, 16, False), (0, 1000, False), (1 << 12, 1000, False)],
)
def test_a_leak_is_distinguished_from_a_pool(each: int, until: int, grows: bool) -> None:
    candidate, reference = Footprint(), Footprint()

    def call() -> None:
        candidate.note((1 << 28) + each * min(len(candidate.kept), until), 2)

    for _ in range(12):
        call()
        reference.note(1 << 28, 2)
    text = growth(candidate, reference, 1 << 20, call)
    assert (text is not None) is grows and (text is None or "1,024 KiB a call" in text)


def test_small_retained_outputs_are_counted() -> None:
    candidate, reference = Footprint(), Footprint()

    def call() -> None:
        candidate.note(1 << 28, len(candidate.kept))

    for _ in range(12):
        call()
        reference.note(1 << 28, 2)
    assert "are still held" in str(growth(candidate, reference, 4, call))


Pair = collections.namedtuple("Pair", ("first", "rest"))


@pytest.mark.parametrize("wrap", [lambda t: (t, [t + 1]), lambda t: {"k": t}, lambda t: Pair(t, 1)])
def test_structured_outputs_are_not_retained_by_looking_at_them(wrap: Any) -> None:
    """While the collector rests; a candidate's own growth would pass for the judge's."""
    outputs = Outputs()
    gc.disable()
    try:
        for _ in range(5):
            outputs.add(describe(wrap(torch.randn(8)))[0])
    finally:
        gc.enable()
    assert outputs.count() == 0


@pytest.mark.parametrize("seed", [6, 10])
def test_a_number_is_given_with_the_other_sign_beside_other_arguments(seed: int) -> None:
    """Zero, which the largest element's index does not bear, must not take the sign's place."""
    body = "y = (x * s).softmax(-1); return torch.where(mask, y, 0.0), y.argmax(-1)"
    inputs = "[torch.randn(32, 64), torch.rand(32, 64) > 0.2, 1.5]"
    source = model(body, inputs, arguments="x, mask, s: float = 1.5")
    cases = cases_of(source, seed=seed)

    def of_size(m: nn.Module, x: torch.Tensor, mask: torch.Tensor, s: float) -> Any:
        return m(x, mask, abs(s))

    assert refusals(cases, lambda m, *args: m(*args)) == {}
    assert refusals(cases, of_size)
    assert any(case.args[2] < 0 for case in made(cases) if case.key.family == "edges")


def test_recurrent_layers_are_packed_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[nn.Module] = []
    module = nn.Sequential(nn.Linear(3, 3), nn.ModuleDict({"a": nn.LSTM(3, 4), "b": nn.GRU(3, 4)}))
    monkeypatch.setattr(nn.RNNBase, "flatten_parameters", lambda layer: packed.append(layer))
    pack_recurrent(module)
    assert packed == [module[1]["a"], module[1]["b"]]
