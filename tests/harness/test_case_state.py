"""What a case leaves and restores: timed draws, gradients, buffers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.errors import TaskError
from dvk.harness.checking.compare import same_bits
from dvk.harness.transport import memory_budget
from dvk.harness.transport.calls import buffers_of, call, describe, leaf_names, put_buffers
from tests.harness.problems import cases_of, judged, made, model

LINEAR = model("return self.n(x)", "[torch.rand(32, 64)]", "self.n = nn.Linear(64, 32)")


def test_timed_draws_are_fresh_deterministic_and_within_their_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = cases_of(LINEAR)
    size = cases.fresh(0).num_bytes
    monkeypatch.setitem(memory_budget.STOCK_BYTES, "cpu", 4 * size)
    cases = cases_of(LINEAR)
    assert cases.stock(10) == 4
    assert cases.fresh(3) is cases.fresh(3) and cases.fresh(7) is not cases.fresh(7)
    assert torch.equal(cases.fresh(7).inputs[0], cases.fresh(7).inputs[0])
    seen = [cases.fresh(i).inputs[0] for i in range(6)] + [
        case.inputs[0] for case in made(cases) if case.key.family == "native"
    ]
    assert len({t.sum().item() for t in seen}) == len(seen)
    for number in range(6):
        case = cases.fresh(number)
        assert judged(
            cases,
            case,
            lambda m, x: (x.double() @ m.n.weight.double().t() + m.n.bias.double()).float(),
        ).ok
        assert not judged(
            cases,
            case,
            lambda m, x: F.linear(x.bfloat16(), m.n.weight.bfloat16(), m.n.bias.bfloat16()).float(),
        ).ok


def test_what_does_not_fit_is_made_again_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = made(cases_of(LINEAR))
    monkeypatch.setitem(memory_budget.KEEP_BYTES, "cpu", 0)
    cases = cases_of(LINEAR)
    for case, again in zip(kept, made(cases), strict=True):
        assert cases.get(case.key) is not again
        assert same_bits(case.inputs[0], again.inputs[0]) and same_bits(
            case.expected[0].same, again.expected[0].same
        )
        assert case.expected[0].admitted == again.expected[0].admitted


class Scale(torch.autograd.Function):
    """Forward right, backward as told."""

    slope = 3.0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * Scale.slope


def test_gradients_of_inputs_and_weights_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = cases_of(
        model("return self.n(x) * 3", "[torch.randn(32, 64)]", "self.n = nn.Linear(64, 8)"),
        backward=True,
    )
    case = made(cases)[0]
    assert [e.name for e in case.expected] == [
        "input_grads.0",
        "output",
        "weight_grads.n.bias",
        "weight_grads.n.weight",
    ]
    assert case.expected[0].truth is not None and case.separation > 5

    class Candidate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n = nn.Linear(64, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Scale.apply(self.n(x))

    candidate = Candidate()
    for slope, right in [(3.0, True), (3.001, False)]:
        monkeypatch.setattr(Scale, "slope", slope)
        for case in made(cases):
            candidate.load_state_dict(cases.state(case.key.weights))
            outcome = cases.check(
                case, *describe(call(candidate, case.args, case.kwargs, case.seed, True))
            )
            assert outcome.ok == right
    assert "input_grads.0" in str(outcome.text)


def test_a_reference_without_gradients_is_said_to_have_none() -> None:
    cases = cases_of(model("return (x > 0).float()", "[torch.randn(32, 64)]"), backward=True)
    with pytest.raises(TaskError, match="no output depends on an input"):
        cases.get(cases.keys[0])


def test_gradients_leave_nothing_behind() -> None:
    module = nn.Linear(4, 3)
    module.bias.requires_grad_(False)
    x = torch.randn(2, 4)
    result = call(module, [x], {}, 0, True)
    assert (
        module.weight.grad is None and module.weight.requires_grad and not module.bias.requires_grad
    )
    assert not x.requires_grad and not result["output"].requires_grad
    assert list(result["weight_grads"]) == ["weight"], "the other is frozen"
    found = call(nn.Linear(4, 3), [x], {}, 0, True)["weight_grads"]["bias"]
    assert torch.equal(found * 8, (found * 8).round()), "cotangents are eighths"
    assert not bool(
        call(nn.Embedding(4, 3), [torch.tensor([0])], {}, 0, True)["weight_grads"]["weight"][
            1:
        ].any()
    )


def test_an_answer_is_described_alike_whatever_its_order() -> None:
    x, y = torch.ones(1), torch.zeros(2)
    leaves, text = describe({"b": [x, None], "a": (y, {"k": 2.5})})
    assert text == "{'a': (*, {'k': *}), 'b': [*, *]}"
    assert leaves[0] is y and leaves[1] == 2.5 and leaves[2] is x and leaves[3] is None
    assert leaf_names({"b": [x, None], "a": (y, {"k": 2.5})}) == ["a.0", "a.1.k", "b.0", "b.1"]
    assert describe(x) == ([x], "*") and describe((x,))[1] == "(*)" and leaf_names(x) == ["output"]
    assert describe(object())[0] == describe(object())[0], "no address in it"


def test_a_returned_buffer_is_a_copy() -> None:
    module = nn.Module()
    module.register_buffer("seen", torch.zeros(2))
    module.forward = lambda x: module.seen.add_(1)  # type: ignore[method-assign, operator]
    result = call(module, [torch.ones(1)], {}, 0)
    put_buffers(module, {"seen": torch.zeros(2)})
    assert result.tolist() == [1, 1]


def test_buffers_that_are_what_they_should_be_are_not_written() -> None:
    """Code that caches values computed from them would recompute them in each timed call."""
    norm = nn.BatchNorm1d(3)
    kept = buffers_of(norm)
    assert norm.running_mean is not None and norm.running_var is not None
    norm.running_var[1] = 4.0
    versions = [buffer._version for buffer in norm.buffers()]
    put_buffers(norm, kept)
    assert norm.running_var.tolist() == [1, 1, 1]
    assert [now._version - was for now, was in zip(norm.buffers(), versions, strict=True)] == [
        0,
        1,
        0,
    ]


UNUSUAL = {
    "-0.0": torch.zeros(2),
    "NaN": torch.tensor([float("nan"), 0.0]),
    "complex": torch.zeros(2, dtype=torch.complex128).conj(),
    "complex halves": torch.zeros(2, dtype=torch.complex32),
    "every second": torch.zeros(3, 2, dtype=torch.float64)[:, 0],
    "one number": torch.tensor(0.0),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_buffers_of_all_kinds_are_put_back(what: str) -> None:
    module = nn.Module()
    module.register_buffer("held", copy.deepcopy(UNUSUAL[what]))
    assert isinstance(module.held, torch.Tensor)
    kept, version = buffers_of(module), module.held._version
    put_buffers(module, kept)
    assert module.held._version == version
    module.held.neg_()
    put_buffers(module, kept)
    assert repr(module.held) == repr(kept["held"])


def test_a_module_without_memory_has_nothing_to_put_back() -> None:
    norm = nn.BatchNorm1d(3, device="meta")
    put_buffers(norm, buffers_of(norm))
