"""Programs that write: in place, through views, by `out=`, into inputs, buffers, slices and temporaries, on lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer.capture.export import CannotCompose
from tests.composer.fuzz_writes import cases, faults
from tests.composer.programs import Program, capture, compiled, differences, drop_in

Step = Callable[[Any, torch.Tensor], Any]
STEPS: dict[str, Step] = {}


def step(function: Step) -> Step:
    STEPS[function.__name__] = function
    return function


class Held(nn.Module):
    """A module whose forward() is one of `STEPS`."""

    def __init__(self, forward: Step):
        super().__init__()
        self.step = forward
        self.register_buffer("b", torch.zeros(4, 6))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("var", torch.ones(6))
        self.register_buffer("tail", self.b[2:])
        self.prelu = nn.PReLU()

    def forward(self, x: torch.Tensor) -> Any:
        return self.step(self, x)


@step
def out_into_a_buffer(self: Any, x: torch.Tensor) -> Any:
    torch.add(x, 1, out=self.b)
    return F.relu(self.b) * 2


@step
def out_into_the_input(self: Any, x: torch.Tensor) -> Any:
    torch.mul(x, 2, out=x)
    return F.gelu(x)


@step
def two_results_into_tensors_with_views(self: Any, x: torch.Tensor) -> Any:
    values, places = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.sort(x.tanh(), -1, out=(values, places))
    torch.max(x, 0, out=(self.mean, torch.empty(0, dtype=torch.long)))
    torch.sort(self.b + x, 0, out=(self.b, torch.empty(0, dtype=torch.long)))
    return values[1:] * 2, values, places.t(), self.mean + 1, self.tail * 3


@step
def resized_before_it_has_views(self: Any, x: torch.Tensor) -> Any:
    y = x.tanh()
    torch.exp(-x.abs(), out=y)
    torch.amax(x, 0, out=y)
    half = y[:3]
    half.mul_(2)
    return y * 1.5, half


@step
def out_into_slices(self: Any, x: torch.Tensor) -> Any:
    o = torch.zeros(4, 12)
    torch.mul(x, 2, out=o[:, :6])
    torch.exp(x, out=o[:, 6:])
    return o + 1


@step
def out_into_two(self: Any, x: torch.Tensor) -> Any:
    values, places = torch.empty(4), torch.empty(4, dtype=torch.long)
    torch.max(x, 1, out=(values, places))
    return values * 2, places


@step
def out_of_cat_into_a_view(self: Any, x: torch.Tensor) -> Any:
    torch.cat([x[:1] * 2, x[1:2]], out=self.b[:2])
    return self.b + x


@step
def view_then_base(self: Any, x: torch.Tensor) -> Any:
    y = x * 1.5
    h = y[:, :3]
    h.mul_(2.0)
    y.add_(1.0)
    return h.sum(-1), y.mean(-1)


@step
def view_of_a_view_written(self: Any, x: torch.Tensor) -> Any:
    y = x.exp()
    h = y.t()[1:].reshape(-1, 4).unbind(0)[0]
    h.copy_(x[:, 0])
    y += 1
    return h, y.tanh()


@step
def buffer_that_is_a_view_of_another(self: Any, x: torch.Tensor) -> Any:
    self.b.add_(x)
    return self.tail * 2


@step
def power_in_place(self: Any, x: torch.Tensor) -> Any:
    y = x * 1.5
    y.pow_(2)
    y[:, 0] = 1.0
    return y + 1


@step
def comparison_in_place(self: Any, x: torch.Tensor) -> Any:
    y = x * 1
    y.gt_(0.1)
    return y + 0.5


@step
def half_in_place_with_float(self: Any, x: torch.Tensor) -> Any:
    y = x.half()
    y.add_(x)
    return y * 2


@step
def dropout_that_drops_nothing(self: Any, x: torch.Tensor) -> Any:
    y = F.dropout(x, 0.5, False)
    y.add_(1)
    return x * 2


@step
def copied_after_dropout_that_is_off(self: Any, x: torch.Tensor) -> Any:
    turned = x.t()
    y = F.dropout(turned, 0.3, False)
    torch.exp(-x.t().abs(), out=y)
    y.neg_()
    return y.contiguous(), y, F.dropout(x, 0.3, False).contiguous(), x


@step
def lists_in_place(self: Any, x: torch.Tensor) -> Any:
    y, z = x.clone(), x.relu()
    torch._foreach_mul_([y, z], 2.0)
    torch._foreach_add_([self.b], [x])
    return y + z


@step
def lists(self: Any, x: torch.Tensor) -> Any:
    y, z = torch._foreach_add([x, x * 2], 1.0)
    torch._foreach_copy_([y], [z])
    return [y, z], torch._foreach_norm([x, z])


@step
def fused_optimizer(self: Any, x: torch.Tensor) -> Any:
    y = x.clone()
    torch._fused_sgd_(
        [y],
        [x],
        [],
        weight_decay=0.0,
        momentum=0.0,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )
    return y * 2


@step
def running_statistics(self: Any, x: torch.Tensor) -> Any:
    before = self.mean * 1
    y = F.batch_norm(x, self.mean, self.var, training=True)
    z, _, _ = torch.native_batch_norm(y, None, None, self.mean, self.var, True, 0.1, 1e-5)
    return z, self.mean - before


@step
def returned_twice_and_as_a_view(self: Any, x: torch.Tensor) -> Any:
    y = x.tanh()
    return y, y, y.view(-1), x.t(), self.b[0]


@step
def returned_after_a_write(self: Any, x: torch.Tensor) -> Any:
    y = x.add_(1)
    return x, y, self.b.mul_(2)


@step
def drawn_into_a_view(self: Any, x: torch.Tensor) -> Any:
    y = x * 2
    y[:, ::2].uniform_()
    self.b[1].normal_()
    return y + self.b


@step
def out_that_is_read_meanwhile(self: Any, x: torch.Tensor) -> Any:
    y, z = x[:4, :4] * 1, x * 1
    v = y.view_as(y)
    torch.sum(v[:, :1] + 0, 1, keepdim=True, out=y[:, :1])
    torch.cumsum(v, 0, out=y)
    torch.cumsum(z, 1, out=z)
    return y, z


@step
def turned_in_place(self: Any, x: torch.Tensor) -> Any:
    y = x * 2
    y.t_().unsqueeze_(0)
    return y + 1


@step
def where_of_booleans(self: Any, x: torch.Tensor) -> Any:
    m = torch.where(x > 0, True, False)
    return (
        x.masked_fill(m, 0),
        torch.where(m, 1, 2),
        torch.where(m.any(), True, False),
        torch.where(m, True, 2),
    )


@step
def prelu_of_no_dimension(self: Any, x: torch.Tensor) -> Any:
    return self.prelu(x.mean()), self.prelu(x[:1, 0])


@pytest.fixture(scope="module")
def programs() -> dict[str, list[Program]]:
    made = {name: [Program(Held(function), torch.randn(4, 6))] for name, function in STEPS.items()}
    for some in made.values():
        some.append(some[0].under(recipes=()))
    compiled(program for some in made.values() for program in some)
    return made


@pytest.mark.parametrize("name", STEPS)
def test_writes_and_shared_memory_match_eager(
    programs: dict[str, list[Program]], name: str
) -> None:
    for program in programs[name]:
        program.module, reference = Held(STEPS[name]), Held(STEPS[name])
        assert (
            faults(
                program.run,
                program.module,
                reference,
                list(program.args),
                precision=torch.float16 if "half" in name else None,
            )
            == []
        )


def spectral() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6)), nn.ReLU())


def test_spectral_norm_goes_on_in_train_mode() -> None:
    program, reference = Program(spectral(), torch.randn(4, 6)), spectral()
    assert faults(program.run, program.module, reference, list(program.args)) == []


def test_one_tensor_passed_twice_is_two_inputs() -> None:
    x = torch.randn(3)
    program = Program(lambda a, b: a - 2 * b, x, x)
    a, b = torch.randn(3), torch.randn(3)
    assert differences(program.run(a, b), a - 2 * b) == []


OVERLAPPING = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.zeros(6))

    def forward(self, x, y):
        before = y * 2
        x.add_(1)
        return torch.tanh(x) + torch.relu(y), before, self.b + y
"""


def test_inputs_that_share_written_memory_run_the_original() -> None:
    made, model, candidate = drop_in(OVERLAPPING, torch.randn(6), torch.randn(6))
    ours = made.ModelNew().eval()
    assert "fused kernel" in candidate.source

    def calls(module: Any) -> list[Any]:
        module.b.zero_()
        memory = torch.arange(12.0)
        given = [
            (memory[:6], memory[6:]),
            (memory[:6], memory[3:9]),
            (memory[:6], memory[:6]),
            (module.b, memory[:6]),
        ]
        return [*([t.clone() for t in module(*pair)] for pair in given), memory, module.b]

    with torch.no_grad():
        assert differences(calls(ours), calls(model)) == []


def largest(y: torch.Tensor) -> torch.Tensor:
    torch.max(y[None], 0, out=(y, torch.empty(0, dtype=torch.long)))
    torch.max(y, 0, out=(y, torch.empty(0, dtype=torch.long)))
    return y


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.sum(x, 0, out=x), x)[1],
        lambda x: (F.dropout(x, 0.5, False).t_(), x)[1],
        lambda x: largest(x.tanh())[..., ::2],
    ],
    ids=["an input resized", "what may be an input turned", "read and resized at once"],
)
def test_changes_of_shape_that_others_see_are_refused(function: Any) -> None:
    with pytest.raises(CannotCompose):
        capture(function, torch.randn(4, 6))


@pytest.mark.parametrize(
    "ask",
    [
        lambda y: y.contiguous(),
        lambda y: y if y.is_contiguous() else y + 1,
        lambda y: y * y.stride(0),
    ],
)
@pytest.mark.slow
def test_the_memory_order_that_a_module_asks_for_is_eager_s_or_none(ask: Any) -> None:
    x = torch.randn(2, 4, 3).permute(0, 2, 1)
    with pytest.raises(CannotCompose, match="memory order of aten.rrelu"):
        capture(lambda x: ask(F.rrelu(x)), x)
    assert faults_of(lambda x: ask(torch.tanh(x)), x) == []


def faults_of(function: Any, *args: torch.Tensor) -> list[str]:
    program = Program(function, *args)
    return faults(program.run, program.module, program.module, list(args))


def fuzzed(seeds: range, every: int) -> list[str]:
    """Errors of generated modules; for every `every`-th the whole drop-in is tested."""
    found: list[str] = []
    count = 0

    def report(seed: int, text: str) -> None:
        if not text.startswith("cannot: "):
            found.append(f"{seed}: {text}")

    for case in cases(seeds, report):
        count += 1
        wrong = case.faults(case.seed % every == every - 1)
        found += [f"{case.seed}: {text}\n{case.text}" for text in wrong]
    assert count > len(seeds) * 0.6
    return found


@pytest.mark.slow
def test_random_programs_of_views_and_writes() -> None:
    assert fuzzed(range(12), 1000) == []


@pytest.mark.slow
def test_many_random_programs_of_views_and_writes() -> None:
    assert fuzzed(range(1000, 1120), 10) == []


def test_a_global_tensor_that_forward_writes_is_not_taken_for_a_constant() -> None:
    table = torch.arange(6.0)
    with pytest.raises(CannotCompose, match="does not hold"):
        capture(lambda x: torch.relu(x + table.add_(1)), torch.randn(4, 6))
    assert capture(lambda x: torch.relu(x + table), torch.randn(4, 6)).graph.nodes


def test_a_generator_that_the_module_holds_goes_on_from_call_to_call() -> None:
    held = Held(lambda self, x: torch.relu(x + torch.randn(x.shape, generator=self.generator)))
    held.generator = torch.Generator().manual_seed(3)
    with pytest.raises(CannotCompose, match="does not seed"):
        capture(held, torch.randn(4, 6))
