"""Recurrent cells and sequences: eager's results over kinds, sizes, types and states, and calls of the library where not covered."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dvk.composer import CannotCompose, Plan, applicable, compose
from dvk.composer.dialect import not_in_dsl
from dvk.composer.ir.effects import draws
from dvk.nanolang import structures
from tests.composer.programs import TASK, Program, capture, compiled, differences, drop_in

pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes")
randn = torch.randn
CELLS, SEQUENCES = (nn.RNNCell, nn.GRUCell, nn.LSTMCell), (nn.RNN, nn.GRU, nn.LSTM)


class Stepped(nn.Module):
    """A recurrent module, its states as plain arguments, and `behind` applied to its results."""

    def __init__(self, inner: nn.Module, behind: Callable[..., Any] = lambda found: found):
        super().__init__()
        self.inner, self.behind = inner, behind

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> Any:
        return self.behind(self.inner(x, *([states] if len(states) > 1 else states)))


def states(kind: Any, *shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [randn(*shape, dtype=dtype) for _ in range(2 if kind in (nn.LSTM, nn.LSTMCell) else 1)]


# ---------------------------------------------------------------- cells

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.mark.slow
def test_cells_are_matmuls_and_one_kernel_of_gates() -> None:
    torch.manual_seed(0)
    made = []
    for kind, dtype, bias, given in itertools.product(CELLS, DTYPES, (True, False), (True, False)):
        if (DTYPES.index(dtype) + bias + given) % 2:
            continue  # half of all: every pair of options occurs
        module = Stepped(kind(7, 13, bias=bias, dtype=dtype))
        args = [randn(5, 7, dtype=dtype), *(states(kind, 5, 13, dtype=dtype) if given else [])]
        made.append((f"{kind.__name__} {dtype} bias={bias} given={given}", Program(module, *args)))
    compiled(p for _, p in made)
    assert {name: differences(p.run(), p.eager(), scale=3) for name, p in made} == {
        name: [] for name, _ in made
    }
    for name, program in made:
        # A state of zeros needs no matmul.
        assert (
            program.externs == ["aten.linear.default"] * (2 if "given=True" in name else 1)
            and len(program.kernels) == 1
        ), name


MODULES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "relu": (Stepped(nn.RNNCell(4, 9, nonlinearity="relu")), (randn(3, 4), randn(3, 9))),
    "without a batch": (Stepped(nn.GRUCell(4, 9)), (randn(4), randn(9))),
    "only h is read": (
        Stepped(nn.LSTMCell(4, 9), lambda found: found[0].relu()),
        (randn(3, 4), randn(3, 9), randn(3, 9)),
    ),
    "only c is read": (
        Stepped(nn.LSTMCell(4, 9), lambda found: found[1] * 2),
        (randn(3, 4), randn(3, 9), randn(3, 9)),
    ),
    "h is read twice": (
        Stepped(nn.LSTMCell(4, 9), lambda found: (found[0], found[0] + found[1])),
        (randn(3, 4), *states(nn.LSTM, 3, 9)),
    ),
    "one of everything": (Stepped(nn.LSTMCell(1, 1)), (randn(1, 1), randn(1, 1), randn(1, 1))),
    "a norm behind it": (Stepped(nn.GRUCell(4, 9), nn.LayerNorm(9)), (randn(3, 4), randn(3, 9))),
    "residual": (
        lambda x, h, *w: torch.gru_cell(x, h, *w) + x,
        (*[randn(3, 4)] * 2, *[randn(12, 4)] * 2, *[randn(12)] * 2),
    ),
    "functional": (torch.rnn_tanh_cell, (randn(3, 4), randn(3, 5), randn(5, 4), randn(5, 5))),
    "transposed": (
        lambda x, h, *w: torch.lstm_cell(x.t(), (h.t(), h.t()), *w),
        (randn(4, 3), randn(5, 3), randn(20, 4), randn(20, 5)),
    ),
}


@pytest.mark.slow
def test_cells_fuse_with_their_neighbours() -> None:
    made = {name: Program(module, *args) for name, (module, args) in MODULES.items()}
    compiled(made.values())
    assert {
        name: differences(p.run(), p.eager(), scale=3) for name, p in made.items()
    } == dict.fromkeys(MODULES, [])
    assert all(
        "recurrent_cells" in p.recipes and not any("cell" in op for op in p.externs)
        for p in made.values()
    )
    assert len(made["residual"].kernels) == len(made["only h is read"].kernels) == 1


class Unrolled(nn.Module):
    """Two cells over a few steps, as hand-written loops have them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GRUCell(6, 10), nn.LSTMCell(10, 8)

    def forward(self, x: torch.Tensor) -> Any:
        a, h, c = (
            x.new_zeros(x.shape[1], 10),
            x.new_zeros(x.shape[1], 8),
            x.new_zeros(x.shape[1], 8),
        )
        for step in x:
            a = self.first(step, a)
            h, c = self.second(a, (h, c))
        return a, h, c


def test_cells_in_a_loop_agree_with_and_without_other_recipes() -> None:
    module, x = Unrolled(), randn(4, 3, 6)
    every = tuple(applicable(capture(module, x).graph, "cpu", "cpp"))
    made = [
        Program(module, x),
        Program(module, x, recipes=every),
        Program(module, x, recipes=("recurrent_cells",)),
    ]
    compiled(made)
    assert [differences(p.run(), p.eager(), scale=3) for p in made] == [[]] * 3
    assert "own_matmul" in every and made[1].externs == []


# ---------------------------------------------------------------- sequences

SIZES = (
    # hidden, batch, steps, inputs, layers
    (16, 4, 5, 8, 1),
    (13, 3, 6, 7, 2),
    (1, 1, 1, 1, 1),
    (33, 1, 4, 5, 3),
    (20, 26, 3, 9, 1),
    (300, 2, 3, 6, 1),
    (9, 7, 2, 3, 1),
)


@pytest.mark.parametrize("kind", SEQUENCES)
@pytest.mark.slow
def test_sequences_agree_with_eager(kind: Any) -> None:
    torch.manual_seed(0)
    made = {}
    options = [
        found for found in itertools.product(*[(True, False)] * 4) if sum(found) % 2 == 0
    ]  # every three of them occur together
    for number, (first, both, bias, given) in enumerate(options):
        hidden, batch, steps, inputs, layers = SIZES[number % len(SIZES)]
        dtype = torch.float64 if number % 3 == 2 else torch.float32
        module = kind(
            inputs, hidden, layers, bias=bias, batch_first=first, bidirectional=both, dtype=dtype
        )
        x = randn(*((batch, steps) if first else (steps, batch)), inputs, dtype=dtype)
        before = states(kind, layers * (1 + both), batch, hidden, dtype=dtype) if given else []
        key = (hidden, batch, steps, inputs, layers, first, both, bias, given, dtype)
        made[key] = Program(
            Stepped(module), x, *before, recipes=("recurrent_sequences", "fuse_pointwise")
        )
    compiled(made.values())
    assert {
        key: found for key, p in made.items() if (found := differences(p.run(), p.eager(), scale=5))
    } == {}
    left = {"aten.linear.default", "aten.cat.default"}
    assert all(set(p.externs) <= left and p.functions for p in made.values())


@pytest.mark.slow
def test_many_units_and_steps_are_shared_by_threads() -> None:
    torch.manual_seed(0)
    made = {
        kind: Program(kind(40, 256, bidirectional=True), randn(20, 17, 40)) for kind in SEQUENCES
    }
    compiled(made.values())
    assert {
        kind: differences(p.run(), p.eager(), scale=5) for kind, p in made.items()
    } == dict.fromkeys(SEQUENCES, [])
    assert all(torch.equal(p.run()[0], p.run()[0]) for p in made.values())


FORMS: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "relu": (nn.RNN(4, 9, nonlinearity="relu"), (randn(5, 3, 4),)),
    "without a batch": (nn.GRU(4, 9, batch_first=True), (randn(5, 4), randn(1, 9))),
    "dropout that rests": (nn.GRU(4, 9, 2, dropout=0.5).eval(), (randn(5, 3, 4),)),
    "one result is read": (
        Stepped(nn.LSTM(4, 9, batch_first=True), lambda found: found[0][:, -1].relu()),
        (randn(3, 5, 4),),
    ),
    "only the last state is read": (
        Stepped(nn.LSTM(4, 9), lambda found: found[1][1].tanh()),
        (randn(5, 3, 4),),
    ),
    "only layers above": (Stepped(nn.GRU(4, 9, 2), lambda found: found[1][-1]), (randn(5, 3, 4),)),
    "transposed input and state": (
        Stepped(nn.GRU(4, 9)),
        (randn(3, 5, 4).transpose(0, 1), randn(9, 3, 1).permute(2, 1, 0)),
    ),
    "a stack with a head": (
        nn.Sequential(
            Stepped(nn.GRU(4, 9), lambda found: found[0]),
            nn.LayerNorm(9),
            Stepped(nn.LSTM(9, 5), lambda found: found[0].mean(0)),
            nn.Linear(5, 2),
        ),
        (randn(5, 3, 4),),
    ),
    "one state for both": (
        Stepped(nn.LSTM(4, 9), lambda found: found),
        (randn(5, 3, 4), *[randn(1, 3, 9)] * 2),
    ),
}


@pytest.mark.slow
def test_sequences_in_all_surroundings() -> None:
    made = {name: Program(module, *args) for name, (module, args) in FORMS.items()}
    compiled(made.values())
    assert {
        name: differences(p.run(), p.eager(), scale=5) for name, p in made.items()
    } == dict.fromkeys(FORMS, [])
    modes = {"aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input"}
    assert all(
        "recurrent_sequences" in p.recipes and not modes & set(p.externs) for p in made.values()
    )


@pytest.fixture(scope="module")
def plain() -> dict[str, Program]:
    """Every kind with its states given."""
    made = {
        kind.__name__: Program(Stepped(kind(4, 9)), randn(3, 4), *states(kind, 3, 9))
        for kind in CELLS
    }
    made |= {
        kind.__name__: Program(Stepped(kind(4, 9)), randn(6, 3, 4), *states(kind, 1, 3, 9))
        for kind in SEQUENCES
    }
    compiled(made.values())
    return made


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30, 1e-40])
@pytest.mark.parametrize("where", range(3))
def test_non_finite_values_match_eager(plain: dict[str, Program], value: float, where: int) -> None:
    wrong = {}
    for name, program in plain.items():
        args = [a.clone() for a in program.args]
        args[min(where, len(args) - 1)][..., 1, 2] = value
        if found := differences(program.run(*args), program.eager(*args), scale=5):
            wrong[name] = found
    assert wrong == {}


SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.layer = nn.GRUCell(6, 6), nn.LSTM(6, 11, 2, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.layer(self.cell(x[:, 0])[:, None] * x)
"""


def test_a_drop_in_follows_its_weights_and_leaves_its_results_to_the_caller() -> None:
    torch.manual_seed(0)
    x = randn(3, 5, 6)
    module, model, candidate = drop_in(SOURCE, x)
    assert {"recurrent_cells", "recurrent_sequences"} <= set(candidate.recipes)
    new = module.ModelNew()
    new.load_state_dict(model.state_dict())
    new.eval()
    with torch.no_grad():
        for _ in range(2):
            (y, (h, c)), wanted = new(x), model(x)
            assert differences((y, (h, c)), wanted, scale=5) == []
            h.zero_()
            assert differences(y, wanted[0], scale=5) == []
            for one in (new, model):
                one.layer.weight_hh_l1_reverse.mul_(-2)
                one.layer.bias_hh_l0.add_(1)
                one.cell.weight_ih.mul_(3)
        assert "_dvk_r0" in candidate.source and new._dvk_ready
        assert (
            differences(new(randn(2, 5, 6).fill_(0.5)), model(torch.full((2, 5, 6), 0.5))) == []
        ), "another size runs the original"


REFUSED: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "projections": (nn.LSTM(4, 9, proj_size=3), (randn(5, 3, 4),)),
    "dropout in training": (nn.GRU(4, 9, 2, dropout=0.5).train(), (randn(5, 3, 4),)),
    "half types": (nn.GRU(4, 9, dtype=torch.bfloat16), (randn(5, 3, 4, dtype=torch.bfloat16),)),
    "no rows": (nn.GRU(4, 9), (randn(5, 0, 4),)),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.slow
def test_other_sequences_stay_calls(name: str) -> None:
    module, args = REFUSED[name]
    graph = capture(module, *args).graph
    assert "recurrent_sequences" not in applicable(graph, "cpu", "cpp")
    assert any("gru" in n.op or "lstm" in n.op for n in graph.nodes)


def test_operands_by_name_are_no_hindrance() -> None:
    def named(x: torch.Tensor, h: torch.Tensor, *w: torch.Tensor) -> Any:
        new = torch.gru_cell(x, h, w_ih=w[0], w_hh=w[1])
        return torch.gru(
            new[None],
            new[None],
            list(w),
            False,
            1,
            0.0,
            train=False,
            bidirectional=False,
            batch_first=False,
        )

    args = (randn(3, 9), randn(3, 9), randn(27, 9), randn(27, 9))
    program = Program(named, *args)
    assert differences(program.run(), program.eager(), scale=5) == []


def test_a_state_that_is_written_in_place_keeps_its_cell() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(4, 9)
            self.register_buffer("state", torch.zeros(3, 9))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            new = self.cell(x, self.state)
            self.state.copy_(new)
            return new * 2

    assert "recurrent_cells" not in applicable(capture(Kept(), randn(3, 4)).graph, "cpu", "cpp")


def test_sequences_are_for_cpp_and_texts_that_a_model_learns_have_none_of_it() -> None:
    captured = capture(nn.LSTM(4, 9), randn(5, 3, 4))
    assert "recurrent_sequences" in applicable(captured.graph, "cpu", "cpp")
    assert not {"recurrent_sequences"} & {
        *applicable(captured.graph, "cuda", "triton"),
        *applicable(captured.graph, "cpu", "triton"),
    }
    with pytest.raises(CannotCompose, match="no kernels for recurrent layers"):
        compose(TASK, captured, Plan(("recurrent_sequences",)), "triton")
    cells = capture(nn.LSTMCell(4, 9), randn(3, 4))
    assert all(
        "recurrent_cells" in applicable(cells.graph, *where)
        for where in (("cuda", "triton"), ("cuda", "cuda"), ("cpu", "cpp"))
    )
    assert not any(
        set(names) & set(not_in_dsl("cpp"))
        for graph in (captured, cells)
        for names in structures(graph, "cpp")
    )


@pytest.mark.parametrize("trains", [True, False])
def test_dropout_between_layers_draws_in_training_alone(trains: bool) -> None:
    graph = capture(nn.LSTM(4, 9, 2, dropout=0.5).train(trains), randn(5, 3, 4)).graph
    assert any(draws(node) for node in graph.nodes) is trains
