"""Training drop-ins: gradients beside eager's own error, and what users do around a training step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dvk.composer.capture.export import trace_module
from dvk.composer.capture.joint import CHECK, with_backward
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.runtime.training import dvk_writable
from tests.composer.dropins import importable
from tests.composer.programs import Function, differences, run_source
from tests.composer.training_steps import TrainingDropIn, errors
from tests.tasks.shrink import TASKS, shrink, thirds

FILES = sorted((TASKS / "train").glob("*/*.py"))
BLOCK = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 24)
        self.gain = nn.Parameter(torch.rand(24), requires_grad=False)
        self.register_buffer("shift", torch.rand(24))
        self.count = nn.BatchNorm1d(24)

    def forward(self, x, skip):
        y = F.gelu(self.up(self.norm(x)) + self.shift) * self.gain
        return self.count(y), skip.tanh()
"""


@pytest.fixture(scope="module")
def block() -> TrainingDropIn:
    torch.manual_seed(0)
    return TrainingDropIn(BLOCK, torch.randn(9, 16), torch.randn(3, 5))


@pytest.fixture(autouse=True)
def fresh(block: TrainingDropIn) -> None:
    torch.manual_seed(1)
    block.new.train().requires_grad_(True)
    block.model.train().requires_grad_(True)
    for model in (block.new, block.model):
        model.gain.requires_grad_(False)
        model.zero_grad(set_to_none=True)
    block.new.load_state_dict(block.model.state_dict())
    block.runs.update(run=0, back=0)


def stepped(model: nn.Module, block: TrainingDropIn, **flags: bool) -> list[Any]:
    """Results and gradients of one step."""
    x, skip = (t.clone().requires_grad_(flags.get(n, True)) for t, n in zip(block.args, "xs"))
    y, z = model(x, skip)
    (y.exp().sum() + z.sum()).backward()
    weights = {name: weight.grad for name, weight in model.named_parameters()}
    return [y, z, x.grad, skip.grad, *[g for g in weights.values() if g is not None]]


def test_values_and_gradients_are_as_exact_as_eager(block: TrainingDropIn) -> None:
    assert all(new <= 4 * eager + 1e-6 for eager, new in errors(block).values()), errors(block)
    assert block.runs == {"run": 1, "back": 1}


def test_running_statistics_are_written_once(block: TrainingDropIn) -> None:
    stepped(block.model, block), stepped(block.new, block)
    assert block.runs == {"run": 1, "back": 1}
    assert differences(dict(block.new.named_buffers()), dict(block.model.named_buffers())) == []
    assert int(block.new.count.num_batches_tracked) == int(block.model.count.num_batches_tracked)


@pytest.mark.parametrize("wanted", [{"x": False}, {"s": False}, {"x": False, "s": False}])
def test_inputs_without_gradient(block: TrainingDropIn, wanted: dict[str, bool]) -> None:
    assert (
        differences(stepped(block.new, block, **wanted), stepped(block.model, block, **wanted))
        == []
    )
    assert block.runs == {"run": 1, "back": 1}


def test_a_result_wants_gradients_where_eagers_does(block: TrainingDropIn) -> None:
    x, skip = block.args
    for given in ((x, skip), (x, skip.clone().requires_grad_(True))):
        got, want = block.new(*given), block.model(*given)
        assert [t.requires_grad for t in got] == [t.requires_grad for t in want]


def test_weights_frozen_later_have_no_gradient(block: TrainingDropIn) -> None:
    for model in (block.new, block.model):
        model.up.weight.requires_grad_(False)
    assert differences(stepped(block.new, block), stepped(block.model, block)) == []
    assert block.new.up.weight.grad is None and block.runs["back"] == 1


def test_a_weight_that_was_frozen_runs_the_original(block: TrainingDropIn) -> None:
    for model in (block.new, block.model):
        model.gain.requires_grad_(True)
    assert differences(stepped(block.new, block), stepped(block.model, block)) == []
    assert block.new.gain.grad is not None and block.runs["run"] == 0


def test_no_gradients_wanted_runs_the_forward_alone(block: TrainingDropIn) -> None:
    with torch.no_grad():
        got = block.new(*block.args)
        assert differences(got, block.model(*block.args)) == []
    assert not got[0].requires_grad and block.runs == {"run": 1, "back": 0}


def test_another_batch_runs_the_original(block: TrainingDropIn) -> None:
    x = torch.randn(4, 16, requires_grad=True)
    block.new(x, block.args[1])[0].sum().backward()
    assert x.grad is not None and block.runs["run"] == 0


def test_gradients_of_gradients_are_the_originals(block: TrainingDropIn) -> None:
    def penalty(model: nn.Module) -> list[torch.Tensor]:
        x = block.args[0].clone().requires_grad_(True)
        y, _ = model(x, block.args[1])
        (grad,) = torch.autograd.grad(y.exp().sum(), x, create_graph=True)
        grad.square().sum().backward()
        weights = [weight.grad for weight in model.parameters() if weight.grad is not None]
        return [x.grad, *weights, *model.buffers()]

    assert differences(penalty(block.new), penalty(block.model), scale=4) == []
    assert block.runs["run"] == 1


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed(block: TrainingDropIn, reentrant: bool) -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        x = block.args[0].clone().requires_grad_(True)
        y, z = checkpoint(model, x, block.args[1], use_reentrant=reentrant)
        y.exp().sum().backward()
        return [x.grad, *[w.grad for w in model.parameters() if w.grad is not None]]

    assert differences(run(block.new), run(block.model)) == []
    assert block.runs == {"run": 2, "back": 1}


def test_under_autocast_the_original_runs(block: TrainingDropIn) -> None:
    def run(model: nn.Module) -> list[Any]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return stepped(model, block)

    assert differences(run(block.new), run(block.model)) == []
    assert block.runs["run"] == 0


def test_accumulates_and_steps(block: TrainingDropIn) -> None:
    def train(model: nn.Module) -> list[torch.Tensor]:
        optimizer = torch.optim.SGD([w for w in model.parameters() if w.requires_grad], lr=0.1)
        for number in range(4):
            stepped(model, block)
            if number % 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=number == 1)
        return list(model.state_dict().values())

    assert differences(train(block.new), train(block.model), scale=8) == []
    assert block.runs == {"run": 4, "back": 4}


def test_after_a_step_of_an_optimizer_the_module_is_not_examined_again(
    block: TrainingDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would cost milliseconds a layer at each step."""
    stepped(block.new, block)
    monkeypatch.setattr(type(block.new), "_dvk_again", None)
    optimizer = torch.optim.SGD([block.new.up.weight], lr=0.1)
    for _ in range(2):
        optimizer.step()
        stepped(block.new, block)
    assert block.runs == {"run": 3, "back": 3}


def test_hooks_see_gradients_and_a_second_backward_works(block: TrainingDropIn) -> None:
    seen: list[torch.Tensor] = []
    x = block.args[0].clone().requires_grad_(True)
    handle = block.new.up.weight.register_hook(lambda grad: seen.append(grad.clone()))
    loss = block.new(x, block.args[1])[0].exp().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    handle.remove()
    assert len(seen) == 2 and torch.equal(seen[0], seen[1])
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_backward_hooks_of_parts_and_thawed_weights_run_the_original(block: TrainingDropIn) -> None:
    seen: list[str] = []
    handle = block.new.norm.register_full_backward_hook(lambda *_: seen.append("norm"))
    block.new(*block.args)[0].sum().backward()
    assert seen == ["norm"] and block.runs["run"] == 0
    assert "hooks are set, on `norm`" in block.new.why(*block.args)
    handle.remove()
    assert block.new.why(*block.args) == "the kernels run"
    block.new.gain.requires_grad_(True)
    assert "frozen" in block.new.why(*block.args)


def test_what_was_saved_must_not_be_written(block: TrainingDropIn) -> None:
    y, _ = block.new(block.args[0].clone().requires_grad_(True), block.args[1])
    with torch.no_grad():
        block.new.norm.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_no_backward_without_an_input_that_has_one() -> None:
    with pytest.raises(CannotCompose, match="no output depends on what has a gradient"):
        made = Function(lambda x: (x > 0).float())
        with_backward(trace_module(made, [torch.randn(3)], ["x"]), made)


def test_two_thirds_are_for_development() -> None:
    assert [path.parent.name for path in FILES].count("heldout") == 8 and len(FILES) == 24


@pytest.mark.slow
@pytest.mark.parametrize("path", thirds(FILES), ids=lambda path: path.stem)
def test_families(path: Path) -> None:
    from tests.composer.programs import run_source

    torch.manual_seed(0)
    source = shrink(path.read_text())
    args = run_source(source).get_inputs()
    made = TrainingDropIn(source, *args)
    if "dropout" in path.stem:
        assert differences(made.gradients(True), made.gradients(False), scale=4) == []
    else:
        found = errors(made)
        assert all(new <= 4 * eager + 2e-6 for eager, new in found.values()), found
    assert made.runs == {"run": 1, "back": 1}


VIEWS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 6)

    def forward(self, x):
        y = self.linear(x)
        return y, x.sin().view(-1)
"""


def test_results_that_are_views_may_be_written() -> None:
    torch.manual_seed(0)
    made = TrainingDropIn(VIEWS, torch.randn(2, 5, 8))

    def run(model: nn.Module) -> list[torch.Tensor]:
        x = made.args[0].clone().requires_grad_(True)
        y, z = model(x)
        y.mul_(2), z.relu_()
        (y.exp().sum() + z.square().sum()).backward()
        return [y, z, x.grad, *[weight.grad for weight in model.parameters()]]

    assert differences(run(made.new), run(made.model)) == []
    assert made.runs == {"run": 1, "back": 1}


@pytest.mark.slow
# A process group that hangs waits outside of Python, where a signal does not reach it.
@pytest.mark.timeout(120, method="thread")
def test_under_distributed_data_parallel(block: TrainingDropIn, tmp_path: Path) -> None:
    import torch.distributed as dist

    store = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(block.new)
        got = stepped(wrapped, block)
    finally:
        dist.destroy_process_group()
    assert differences(got, stepped(block.model, block)) == []
    assert block.runs == {"run": 1, "back": 1}


def test_results_that_are_views_are_made_writable_beside_arguments_that_are_no_tensors() -> None:
    held = torch.ones(4, 2)
    (free, copied) = dvk_writable((torch.ones(4, 2).T, held.T), (held,), (None, 3))
    assert not free._is_view() and copied.data_ptr() != held.data_ptr()
    assert torch.equal(free, torch.ones(2, 4)) and torch.equal(copied, held.T)


HALF = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 24).bfloat16()

    def forward(self, x, y, z):
        return F.gelu(self.up(x)), torch.baddbmm(z, y, y.mT)
"""


def test_products_stay_in_the_type_of_their_operands() -> None:
    """PyTorch's decomposition of a linear multiplies bfloat16 in float32, which takes a GPU many times as long."""
    given = [torch.randn(size, dtype=torch.bfloat16) for size in ((9, 16), (2, 5, 7), (2, 5, 5))]
    model = importable(run_source(HALF)).Model()
    training = with_backward(trace_module(model, given, ["x", "y", "z"]), model).training
    assert training is not None
    products = [
        node
        for graph in (training.forward, training.backward)
        for node in graph.nodes
        if node.op in [f"aten.{name}.default" for name in ("mm", "bmm", "addmm", "baddbmm")]
    ]
    assert len(products) == 6 and {node.dtype for node in products} == {"bfloat16"}


def test_checks_of_conversions_are_left_out_of_a_step_on_a_gpu() -> None:
    """An export checks that a tensor to convert is on `cuda`; the traced one is on `cuda:0`."""
    model = Function(lambda x: x.bfloat16().float().square())
    captured = trace_module(model, [torch.randn(4, 8)], ["x"])
    checked = [node for node in captured.graph.nodes if node.op == CHECK]
    assert checked
    moved = [
        node.model_copy(update={"kwargs": {**node.kwargs, "device": "meta"}})
        if node in checked
        else node
        for node in captured.graph.nodes
    ]
    graph = captured.graph.model_copy(update={"nodes": tuple(moved)})
    assert with_backward(captured.model_copy(update={"graph": graph}), model).training


PIECES = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, c):
        heads = x.view(5, 3, 2, 8).transpose(1, 2)
        left, right = heads[..., :4], heads[..., -4:]
        return heads * c + torch.cat((-right, left), -1), x[:, 1].sigmoid(), x[..., 1:7:2] * 2
"""


def test_gradients_of_pieces_are_zeros_that_their_readers_compute() -> None:
    """Of rotated heads, and of one element: no tensor of zeros is written, and no part of one."""
    made = TrainingDropIn(PIECES, torch.randn(5, 3, 16), torch.randn(8))
    assert all(new <= 4 * eager + 1e-6 for eager, new in errors(made).values()), errors(made)
    program = made.candidate.source.partition("dvk_fused = ModelNew")[0]
    assert program.count("slice_scatter") == 1  # of every second element
    assert "functional.pad" not in program and "torch.zeros" not in program


PARTED = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = (t.view(2, 5, 2, 4).transpose(1, 2) for t in self.line(x).split(8, -1))
        return F.softmax(q @ k.mT, -1) @ v, x[:, 1:4].tanh() + x[:, :3].sigmoid()
"""


def test_the_gradient_of_a_split_is_one_concatenation() -> None:
    made = TrainingDropIn(PARTED, torch.randn(2, 5, 8))
    assert all(new <= 4 * eager + 1e-6 for eager, new in errors(made).values()), errors(made)
    program = made.candidate.source.partition("dvk_fused = ModelNew")[0]
    assert program.count("torch.cat(") == 1 and "functional.pad" not in program


PADDED = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        def left():
            return F.pad(x[:, :3].sin(), (0, 3))

        def right():
            return F.pad(x[:, 3:].cos(), (3, 0))

        scaled = torch.add(left(), right(), alpha=2)
        rows = F.pad(x[:1, :3].exp(), (0, 3)) + right()
        return scaled * x, rows.tanh(), (left() + right().double()).exp()
"""


def test_paddings_that_are_no_pieces_of_one_tensor_stay_a_sum() -> None:
    """One is scaled, one is broadcast, and one is of another dtype."""
    made = TrainingDropIn(PADDED, torch.randn(4, 6))
    assert all(new <= 4 * eager + 1e-6 for eager, new in errors(made).values()), errors(made)
