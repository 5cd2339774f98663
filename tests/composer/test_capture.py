"""Capture: the graph equals the module's behaviour, or capture is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer import CannotCompose
from dvk.composer import capture as capture_task
from dvk.composer.capture.export import CapturedGraph, trace_module
from dvk.composer.ir.effects import pinned, written
from dvk.config import Limits
from dvk.tasks import load
from tests.composer.programs import Function, Program, capture, compiled, differences, drop_in


def operators(captured: CapturedGraph) -> list[str]:
    return [n.op.split(".")[1] for n in captured.graph.nodes if n.op.startswith("aten.")]


def by_target(captured: CapturedGraph) -> dict[str | None, Any]:
    return {n.target: n for n in captured.graph.nodes if n.target is not None}


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4)])
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("hidden", torch.ones(4), persistent=False)
        self.mask = torch.tensor([1.0, 0.0, 1.0, 0.0])
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (
            self.blocks[0](x) * self.scale * self.hidden
            + self.mask
            + torch.tensor([1.0, 2.0, float("inf"), 4.0]) * torch.tensor(2.0)
        )


def test_weights_buffers_and_constants_keep_their_paths() -> None:
    captured = capture(Held(), torch.randn(2, 4))
    kinds = {n.target: n.op for n in captured.graph.nodes if n.target}
    assert kinds == {
        "x0": "input",
        "blocks.0.weight": "param",
        "blocks.0.bias": "param",
        "scale": "buffer",
        "hidden": "buffer",
        "mask": "const",
    }
    literals = [
        n.kwargs["data"] for n in captured.graph.nodes if n.op == "const" and n.target is None
    ]
    assert literals == [[1.0, 2.0, {"float": "inf"}, 4.0], 2.0]


def test_shapes_dtypes_and_strides_are_recorded() -> None:
    captured = capture(lambda x: (x.t() + 1).to(torch.float16), torch.randn(2, 3))
    last = captured.graph.nodes[-1]
    assert (last.shape, last.dtype, last.strides) == ((3, 2), "float16", (1, 3))


def test_a_captured_graph_survives_json() -> None:
    captured = capture(Held(), torch.randn(2, 4))
    again = CapturedGraph.model_validate(json.loads(json.dumps(captured.model_dump(mode="json"))))
    assert again.graph.listing() == captured.graph.listing() and again.facts == captured.facts


def test_equal_modules_have_equal_listings() -> None:
    listings = {capture(Held(), torch.randn(2, 4)).graph.listing() for _ in range(2)}
    assert len(listings) == 1


def test_plain_arguments_are_baked_in() -> None:
    captured = trace_module(
        Function(lambda x, k, flag: x * k if flag else x),
        [torch.randn(3), 2.5, True],
        ["x", "k", "flag"],
    )
    assert captured.arguments == ("x", "k", "flag") and captured.constants == {
        "k": 2.5,
        "flag": True,
    }
    assert [n.target for n in captured.graph.nodes if n.op == "input"] == ["x"]


IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {}


def in_place(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    IN_PLACE[function.__name__] = function
    return function


@in_place
def fresh(x: torch.Tensor) -> torch.Tensor:
    return F.relu_((x * 2).add_(1).clamp_(max=3).sub_(0.5))


@in_place
def returned_by_the_write(x: torch.Tensor) -> Any:
    y = torch.relu(x)
    a = y.add_(1)
    a.mul_(2)
    y.sub_(3)
    return y, a


@in_place
def read_between(x: torch.Tensor) -> Any:
    y = x.exp()
    before = y * 2
    y.neg_()
    return before, y + before


@in_place
def alias_read_later(x: torch.Tensor) -> Any:
    y = torch.relu(x)
    a = y.view(-1)
    b = a.view(2, -1)
    y.add_(1)
    return b * 2


@in_place
def alias_of_a_chunk(x: torch.Tensor) -> Any:
    y = x * 2
    left, right = y.chunk(2, -1)
    y.mul_(3)
    return left + right


@in_place
def alias_read_before_only(x: torch.Tensor) -> Any:
    y = x * 2
    total = y.view(-1).sum()
    y.mul_(3)
    return y + total


@in_place
def write_through_a_view(x: torch.Tensor) -> Any:
    y = x.sin()
    y.view(-1).add_(1)
    y[:, 0] = 5
    y[0] += x[1]
    return y * 2


@in_place
def write_through_an_alias_of_an_input(x: torch.Tensor) -> Any:
    x.view(-1).mul_(2)
    a = x.add_(1)
    a.mul_(2)
    return x * 3


@in_place
def read_before_and_after_an_input_is_written(x: torch.Tensor) -> Any:
    before = x * 2
    late = x.t()
    x.zero_()
    return before, late + 1, x


@in_place
def filled_with_slices(x: torch.Tensor) -> Any:
    z = torch.zeros(4, 4)
    z[:, 0] = x[:, 1]
    z[1, 1:3].copy_(x[2, :2])
    return torch.relu(z) + 1


@in_place
def half_with_a_wider_operand(x: torch.Tensor) -> Any:
    y = x.to(torch.float16) * 1.5
    y.add_(x)
    return y.cumsum(0)


@in_place
def constant_written(x: torch.Tensor) -> Any:
    t = torch.tensor([1.0, 2.0, 3.0, 4.0])
    t.mul_(2)
    return x * t, t


@in_place
def masked(x: torch.Tensor) -> Any:
    y = x + 1
    y.masked_fill_(x > 0, -1.0)
    y[x < -1] = 7.0
    return y * 2


@pytest.fixture(scope="module")
def in_place_programs() -> dict[str, Program]:
    made = {name: Program(function, torch.randn(4, 4)) for name, function in IN_PLACE.items()}
    compiled(made.values())
    return made


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.slow
def test_in_place_operations_keep_their_meaning(
    in_place_programs: dict[str, Program], name: str
) -> None:
    program = in_place_programs[name]
    for _ in range(2):
        mine, theirs = (torch.arange(16.0).view(4, 4).sub(6).div(3) for _ in range(2))
        assert differences(program.run(mine), program.eager(theirs)) == []
        assert torch.equal(mine, theirs)


def test_in_place_on_a_temporary_becomes_an_ordinary_operator() -> None:
    assert [op for op in operators(capture(fresh, torch.randn(4, 4))) if op.endswith("_")] == []
    assert "add_" in operators(capture(alias_read_later, torch.randn(4, 4)))
    assert operators(capture(write_through_an_alias_of_an_input, torch.randn(4, 4))) == [
        "view",
        "mul_",
        "add_",
        "mul_",
        "mul",
    ]


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        before = self.norm.running_mean * 2
        y = self.norm(x)
        self.calls += 1
        return y * self.calls, self.norm.running_mean + before


def test_buffers_are_read_and_written_in_program_order() -> None:
    mine, theirs = Norms(), Norms()
    program = Program(mine, torch.randn(6, 4))
    for _ in range(3):
        x = torch.randn(6, 4)
        with torch.no_grad():
            assert differences(program.run(x), theirs(x)) == []
    assert mine.calls == 3
    torch.testing.assert_close(mine.norm.running_var, theirs.norm.running_var)


def test_running_statistics_count_as_written() -> None:
    graph = capture(Norms(), torch.randn(6, 4)).graph
    paths = {n.name: n.target for n in graph.nodes}
    stats = {
        paths[name]
        for node in graph.nodes
        for name in written(node)
        if node.op.startswith("aten.batch_norm")
    }
    assert stats == {"norm.running_mean", "norm.running_var"}
    assert {"aten.batch_norm.default", "aten.add_.Tensor"} <= {
        n.op for n in graph.nodes if n.name in pinned(graph)
    }
    assert pinned(capture(Norms().eval().norm, torch.randn(6, 4)).graph) == set()


OUTPUTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tuple": lambda x: (x + 1, x * 2),
    "one in a tuple": lambda x: (x + 1,),
    "list": lambda x: [x + 1, (x, x)],
    "none inside": lambda x: (x + 1, None),
    "dict": lambda x: {"loss": x.sum(), "ref": {"tuple": x * 2}, "value": [x]},
    "a dict like ours": lambda x: {"ref": x + 1},
    "numbers": lambda x: (x.sum(), 3, 2.5, True, "text"),
    "same twice": lambda x: (lambda y: (y, y))(x + 1),
    "named by torch": lambda x: {"max": (x + 1).max(0), "top": [(x * 2).topk(2)]},
    "empty tuple inside": lambda x: (x + 1, ()),
    "an input": lambda x: x,
    "a constant": lambda x: (x, torch.tensor([1.0, 2.0])),
    "number keys": lambda x: {1: x + 1, 2.5: x},
}


@pytest.fixture(scope="module")
def output_programs() -> dict[str, Program]:
    made = {name: Program(function, torch.randn(3)) for name, function in OUTPUTS.items()}
    compiled(made.values())
    return made


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_keep_their_nesting(output_programs: dict[str, Program], name: str) -> None:
    program = output_programs[name]
    assert differences(program.run(), program.eager()) == []


def test_a_returned_constant_is_new_every_time(output_programs: dict[str, Program]) -> None:
    program = output_programs["a constant"]
    program.run()[1].zero_()
    assert program.run()[1].tolist() == [1.0, 2.0]


def hooked() -> nn.Module:
    model = nn.Sequential(nn.ReLU(), nn.Tanh())
    model[1].register_forward_hook(lambda *_: None)
    return model


REFUSED: dict[str, tuple[Callable[[], Any], tuple[Any, ...], str]] = {
    "a detour": (
        lambda: Function(lambda x: torch.from_numpy(x.numpy())),
        (torch.randn(3),),
        r"test_capture.py, line \d+",
    ),
    "a large literal": (
        lambda: Function(lambda x: x + torch.tensor([0.5] * 300)),
        (torch.randn(300),),
        "300 elements",
    ),
    "an object as an input": (lambda: Function(lambda x: x), (object(),), "input `x0` is a object"),
    "a local class": (
        lambda: Function(lambda x: type("Local", (), {})()),
        (torch.randn(3),),
        "no name",
    ),
    "an exception": (
        lambda: Function(lambda x: x.no_such_method()),
        (torch.randn(3),),
        "no_such_method",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_failed_capture_gives_the_reason(name: str) -> None:
    make, args, said = REFUSED[name]
    with pytest.raises(CannotCompose, match=said):
        capture(make(), *args)


def test_facts_are_the_same_in_two_constructions() -> None:
    x = torch.randn(2, 4)
    assert capture(Held(), x).facts == capture(Held(), x).facts


@pytest.mark.slow
def test_capture_runs_the_users_file_in_a_child(tmp_path: Any) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import os, torch\nfrom torch import nn\n\nPARENT = os.getppid()\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return torch.relu(x) + 1\n\n\ndef get_inputs():\n    return [torch.randn(3, 4)]\n"
    )
    task = load(str(path))
    captured = capture_task(task, Limits())
    assert operators(captured) == ["relu", "add"] and captured.arguments == ("x",)
    with pytest.raises(CannotCompose):
        source = task.source.replace(
            "return torch.relu(x) + 1", "return torch.from_numpy(x.numpy())"
        )
        capture_task(task.model_copy(update={"source": source}), Limits())


LIKELIHOOD = """
import torch
from torch.nn import functional as F


class Model(torch.nn.Module):
    def forward(self, mean, target, var):
        return F.gaussian_nll_loss(mean, target, var, full=True, reduction="none")
"""


def test_a_function_that_looks_at_values_only_to_raise_gives_nan_instead() -> None:
    mean, target, var = torch.randn(30, 40), torch.randn(30, 40), torch.rand(30, 40)
    module, model, candidate = drop_in(LIKELIHOOD, mean, target, var)
    ours = module.ModelNew().eval()
    with torch.no_grad():
        assert (
            torch.allclose(ours(mean, target, var), model(mean, target, var), atol=1e-6)
            and "1 fused kernel" in candidate.source
        )
        var[3, 5] = -1.0
        with pytest.raises(ValueError, match="negative"):
            model(mean, target, var)
        assert ours(mean, target, var).isnan().nonzero().tolist() == [[3, 5]]


def test_writes_into_a_given_tensor_are_captured_unchanged() -> None:
    made = capture(
        lambda a, b, c: torch.outer(a, b, out=c), torch.randn(3), torch.randn(4), torch.empty(3, 4)
    )
    assert "aten.outer.out" in [node.op for node in made.graph.nodes]
