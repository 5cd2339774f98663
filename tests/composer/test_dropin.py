"""Drop-ins replace the module everywhere: same results where they are fused, the original otherwise."""

from __future__ import annotations

import ast
import copy
import inspect
import io
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dvk
from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.export import trace_module
from dvk.records import Task
from tests.composer.dropins import BLOCK, Counting, module_text
from tests.composer.programs import Function, differences, run_source


@pytest.fixture(scope="module")
def shared() -> Counting:
    torch.manual_seed(0)
    return Counting(BLOCK, torch.randn(4, 8))


@pytest.fixture
def block(shared: Counting) -> Counting:
    """A drop-in with fresh weights and state for each test."""
    shared.reference = run_source(BLOCK).Model().eval()
    shared.new = shared.build()
    return shared


def agree(
    block: Counting, *args: Any, fused: bool, model: nn.Module | None = None, **kwargs: Any
) -> None:
    was, got = block.fused(*args, model=model, **kwargs)
    assert was is fused
    assert differences(got, block.reference(*args, **kwargs)) == []


@torch.no_grad()
def test_matches_the_captured_call(block: Counting) -> None:
    assert list(block.new.state_dict()) == list(block.reference.state_dict())
    assert inspect.signature(block.module.ModelNew) == inspect.signature(type(block.reference))
    assert inspect.signature(block.new.forward) == inspect.signature(block.reference.forward)
    agree(block, torch.randn(4, 8), fused=True)
    was, got = block.fused(x=torch.randn(4, 8))
    assert was and got.shape == (4, 8)


FOREIGN: dict[str, Callable[[], tuple[torch.Tensor, ...]]] = {
    "another batch": lambda: (torch.randn(5, 8),),
    "another rank": lambda: (torch.randn(2, 4, 8),),
    "empty": lambda: (torch.randn(0, 8),),
    "transposed": lambda: (torch.randn(8, 4).t(),),
    "every second row": lambda: (torch.randn(8, 8)[::2],),
    "an optional argument": lambda: (torch.randn(4, 8), torch.randn(4, 8)),
    "expanded": lambda: (torch.randn(1, 8).expand(4, 8),),
}


@torch.no_grad()
@pytest.mark.parametrize("name", FOREIGN)
def test_falls_back_for_other_inputs(block: Counting, name: str) -> None:
    agree(block, *FOREIGN[name](), fused=False)


@torch.no_grad()
def test_a_slice_with_the_same_layout_fits(block: Counting) -> None:
    agree(block, torch.randn(9, 8)[3:7], fused=True)


@torch.no_grad()
def test_falls_back_for_other_dtypes(block: Counting) -> None:
    block.reference.double(), block.new.double()
    agree(block, torch.randn(4, 8, dtype=torch.float64), fused=False)
    block.reference.float(), block.new.float()
    agree(block, torch.randn(4, 8), fused=True)


@torch.no_grad()
def test_raises_the_original_error(block: Counting) -> None:
    for wrong in (
        torch.randn(4, 7),
        torch.randn(4, 8, dtype=torch.float64),
        torch.randn(4, 8).to_sparse(),
        torch.randn(4, 8, device="meta"),
    ):
        with pytest.raises(Exception) as mine:
            block.new(wrong)
        with pytest.raises(Exception) as theirs:
            block.reference(wrong)
        assert type(mine.value) is type(theirs.value)
    with pytest.raises(TypeError):
        block.new()


def test_falls_back_whenever_gradients_are_wanted(block: Counting) -> None:
    x = torch.randn(4, 8)
    was, got = block.fused(x)
    assert not was and got.requires_grad
    got.sum().backward()
    block.reference(x).sum().backward()
    assert torch.allclose(block.new.norm.weight.grad, block.reference.norm.weight.grad)
    block.new.requires_grad_(False)
    assert block.fused(x)[0]
    assert not block.fused(x.clone().requires_grad_())[0]
    with torch.inference_mode():
        assert block.fused(x)[0]


@torch.no_grad()
def test_falls_back_under_autocast(block: Counting) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        agree(block, torch.randn(4, 8), fused=False)
    agree(block, torch.randn(4, 8), fused=True)


class Tagged(torch.Tensor):
    """A subclass that keeps its type through operators."""


@torch.no_grad()
def test_falls_back_for_tensor_subclasses_and_parameters(block: Counting) -> None:
    was, got = block.fused(torch.randn(4, 8).as_subclass(Tagged))
    assert not was and type(got) is Tagged
    assert not block.fused(nn.Parameter(torch.randn(4, 8)))[0]


@torch.no_grad()
def test_follows_train_and_eval(block: Counting) -> None:
    x = torch.randn(4, 8)
    agree(block, x, fused=True)
    for mode in (block.new.train, block.reference.train):
        mode()
    results = []
    for model in (block.new, block.reference):
        torch.manual_seed(1)
        results.append(model(x))
    assert torch.equal(*results)
    block.new.eval(), block.reference.eval()
    agree(block, x, fused=True)


@torch.no_grad()
@pytest.mark.parametrize("called_before", [False, True])
def test_follows_the_mode_of_a_child(block: Counting, called_before: bool) -> None:
    x = torch.randn(4, 8)
    if called_before:
        agree(block, x, fused=True)
    block.new.drop.train()
    assert not block.fused(x)[0]
    if called_before:
        block.new.drop.eval()
        agree(block, x, fused=True)


@torch.no_grad()
@pytest.mark.parametrize("called_before", [False, True])
@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_runs_hooks_of_children(block: Counting, register: str, called_before: bool) -> None:
    x, seen = torch.randn(4, 8), []
    if called_before:
        agree(block, x, fused=True)
    handle = getattr(block.new.layers[1], register)(lambda *given: seen.append(1))
    assert not block.fused(x)[0] and seen
    handle.remove()
    agree(block, x, fused=True)


@torch.no_grad()
def test_runs_module_hooks_and_global_hooks(block: Counting) -> None:
    x, seen = torch.randn(4, 8), []
    block.new.register_forward_hook(lambda module, args, result: result * 0)
    was, got = block.fused(x)
    assert was and not got.any()
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, args, result: seen.append(type(module))
    )
    try:
        assert not block.fused(x)[0] and nn.LayerNorm in seen
    finally:
        handle.remove()


@torch.no_grad()
@pytest.mark.parametrize("init", [(8, 0.3), (16,), (16, 0.1)])
def test_other_constructor_arguments(block: Counting, init: tuple[Any, ...]) -> None:
    block.reference = run_source(BLOCK).Model(*init).eval()
    agree(block, torch.randn(4, init[0]), fused=False, model=block.build(*init))


@torch.no_grad()
def test_notices_replaced_children(block: Counting) -> None:
    x = torch.randn(4, 8)
    agree(block, x, fused=True)
    block.new.drop = nn.Tanh()
    was, got = block.fused(x)
    assert not was and torch.allclose(got, torch.tanh(block.reference(x)))
    block.new.layers[0] = nn.Linear(8, 5)
    with pytest.raises(RuntimeError):
        block.new(x)


@torch.no_grad()
def test_weights_are_read_live(block: Counting) -> None:
    x = torch.randn(4, 8)
    for update in (
        lambda m: m.norm.weight.mul_(3),
        lambda m: m.layers[0].bias.fill_(0.5),
        lambda m: setattr(m.norm, "bias", nn.Parameter(torch.ones(8))),
        lambda m: setattr(m.layers[1].weight, "data", torch.eye(8)),
        lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
    ):
        update(block.reference), update(block.new)
        # A replaced tensor costs one call of the original, a written tensor none.
        assert differences(block.new(x), block.reference(x)) == []
        agree(block, x, fused=True)


@torch.no_grad()
def test_tensors_that_are_swapped_for_one_call_are_used_for_that_call(block: Counting) -> None:
    x = torch.randn(4, 8)
    agree(block, x, fused=True)
    other = {name: torch.randn_like(p) for name, p in block.new.named_parameters()}
    swapped = torch.func.functional_call(block.new, other, (x,))
    assert differences(swapped, torch.func.functional_call(block.reference, other, (x,))) == []
    assert differences(block.new(x), block.reference(x)) == []


@torch.no_grad()
def test_copies_and_pickles_work(block: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(4, 8)
    agree(block, x, fused=True)
    agree(block, x, fused=True, model=copy.deepcopy(block.new))
    monkeypatch.setitem(sys.modules, block.module.__name__, block.module)
    agree(block, x, fused=True, model=pickle.loads(pickle.dumps(block.new)))
    assert not any(key.startswith("_dvk_") for key in block.new.__getstate__())
    kept = io.BytesIO()
    torch.save(block.new.state_dict(), kept)


def test_is_traced_and_exported_as_the_original(block: Counting) -> None:
    x = torch.randn(4, 8)
    with torch.no_grad():
        agree(block, x, fused=True)
        operators = {str(n.target) for n in torch.export.export(block.new, (x,)).graph.nodes}
        assert "aten.layer_norm.default" in operators
        traced = torch.jit.trace(block.new, x)
        other = torch.randn(4, 8)
        assert torch.allclose(traced(other), block.reference(other))


@torch.no_grad()
def test_results_are_fresh_memory_and_inputs_stay(block: Counting) -> None:
    x = torch.randn(4, 8)
    kept = x.clone()
    first = block.fused(x)[1]
    saved = first.clone()
    second = block.fused(x + 1)[1]
    assert (
        torch.equal(x, kept) and torch.equal(first, saved) and first.data_ptr() != second.data_ptr()
    )


@torch.no_grad()
def test_replace_converts_a_live_model(block: Counting, capfd: pytest.CaptureFixture[str]) -> None:
    namespace = run_source(BLOCK)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.more = namespace.Model(), nn.ModuleList([namespace.Model(), nn.ReLU()])
            self.again = self.first
            self.other = type("Model", (nn.Linear,), {})(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.other(self.again(self.more[1](self.more[0](self.first(x)))))

    outer = Outer().eval()
    x = torch.randn(4, 8)
    want = outer(x)
    weights = dict(outer.named_parameters())
    before = block.runs
    optimized = block.module.replace(outer)
    said = capfd.readouterr().err
    assert "3 replaced (first, again, more.0), 1 left as before\n" in said
    assert "left other as before: it is not the one in this file: `Model" in said
    assert optimized is outer and torch.allclose(outer(x), want, atol=1e-5)
    assert block.runs == before + 3
    assert (
        outer.first is outer.again
        and type(outer.other).__name__ == "Model"
        and not isinstance(outer.other, block.module.ModelNew)
    )
    assert all(p is weights[name] for name, p in outer.named_parameters())
    alone = namespace.Model().eval()
    assert (
        isinstance(block.module.replace(alone), block.module.ModelNew)
        and "1 replaced (the model itself)" in capfd.readouterr().err
    )
    block.module.replace(nn.ReLU())
    assert "0 replaced (no `Model`), 0 left" in capfd.readouterr().err


@torch.no_grad()
def test_batch_norm_in_train_mode_updates_its_statistics() -> None:
    text = module_text(
        "return torch.relu(self.norm(x)) * self.norm.running_mean",
        init="self.norm = nn.BatchNorm1d(6)",
    )
    block = Counting(text, torch.randn(5, 6), training=True)
    for _ in range(3):
        agree(block, torch.randn(5, 6), fused=True)
    for name, value in block.reference.state_dict().items():
        assert torch.equal(value, block.new.state_dict()[name]), name
    assert block.new.norm.num_batches_tracked == 3


@torch.no_grad()
def test_dropout_in_train_mode_draws_as_the_original_does() -> None:
    text = module_text(
        "return self.drop(torch.relu(self.drop(x)) + 1) * 2", init="self.drop = nn.Dropout(0.4)"
    )
    block = Counting(text, torch.randn(64, 6), training=True)
    x = torch.randn(64, 6)
    torch.manual_seed(5)
    was, got = block.fused(x)
    torch.manual_seed(5)
    assert was and differences(got, block.reference(x)) == []


@torch.no_grad()
def test_tied_weights_stay_tied() -> None:
    text = module_text(
        "return torch.tanh(self.b(torch.relu(self.a(x)) + self.a.bias)) * self.a.bias",
        init="self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)\nself.b.weight = self.a.weight",
    )
    block = Counting(text, torch.randn(3, 6))
    assert block.new.a.weight is block.new.b.weight
    block.new.a.weight.mul_(2), block.reference.a.weight.mul_(2)
    agree(block, torch.randn(3, 6), fused=True)


@torch.no_grad()
def test_outputs_alias_inputs_exactly_where_eager_does() -> None:
    text = module_text(
        "return x, x.view(-1), x.t(), x.detach(), x.to(torch.float32), x.to(torch.float32, copy=True), x.contiguous(), x.clone(), "
        "x * 1, x.reshape(2, 6), x[1:], x.expand(3, 4), x + 0, torch.dropout(x, 0.5, False), x.t().contiguous(), torch.relu(x).view(-1)"
    )
    block = Counting(text, torch.randn(3, 4))
    x = torch.randn(3, 4)
    was, got = block.fused(x)
    want = block.reference(x)
    assert was and differences(got, want) == []
    share = [
        [t.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for t in result]
        for result in (got, want)
    ]
    assert share[0] == share[1]


@torch.no_grad()
def test_an_input_that_the_module_writes_is_written_once() -> None:
    block = Counting(
        module_text("x.add_(1)\ny = x * 2\nx.mul_(3)\nreturn y.sin() + x.sum()"), torch.randn(3, 4)
    )
    mine, theirs = torch.ones(3, 4), torch.ones(3, 4)
    was, got = block.fused(mine)
    assert was and differences(got, block.reference(theirs)) == [] and torch.equal(mine, theirs)


CONV = module_text(
    "return torch.relu(self.norm(self.conv(x))) + self.conv(x).mean((2, 3), keepdim=True)",
    init="self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)",
)


@torch.no_grad()
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_layouts_of_results_follow_the_layout_of_the_input(
    memory_format: torch.memory_format,
) -> None:
    x = torch.randn(2, 3, 6, 5).contiguous(memory_format=memory_format)
    block = Counting(CONV, x)
    agree(block, x, fused=True)
    other = (
        torch.channels_last if memory_format is torch.contiguous_format else torch.contiguous_format
    )
    agree(block, x.contiguous(memory_format=other), fused=False)


@torch.no_grad()
def test_plain_arguments_are_part_of_the_captured_call() -> None:
    block = Counting(
        module_text(
            "return x * scale + (0 if bias is None else bias)", params="x, scale, bias=None"
        ),
        torch.randn(4),
        2.5,
        None,
    )
    x = torch.randn(4)
    agree(block, x, 2.5, None, fused=True)
    agree(block, x, 2.5, bias=None, fused=True)
    for args in (
        (x, 2.0, None),
        (x, 2, None),
        (x, 2.5, 1.0),
        (x, 2.5),
        (x, torch.tensor(2.5), None),
    ):
        agree(block, *args, fused=False)


@torch.no_grad()
def test_arguments_may_have_any_names() -> None:
    block = Counting(
        module_text("return torch.relu(type) + any * self_ - _t0", params="type, any, self_, _t0"),
        *[torch.randn(4) for _ in range(4)],
    )
    agree(block, *[torch.randn(4) for _ in range(4)], fused=True)
    many = Counting(
        module_text("return (xs[0] + xs[1]).sin()", params="*xs"),
        torch.randn(4),
        torch.randn(4),
        names=["xs.0", "xs.1"],
    )
    agree(many, torch.randn(4), torch.randn(4), fused=True)
    agree(many, torch.randn(4), torch.randn(4), torch.randn(4), fused=False)


@torch.no_grad()
def test_attributes_of_any_kind_are_part_of_the_configuration() -> None:
    init = "self.options = {'slope': 0.1, 'acts': [torch.relu]}\nself.kind = Kind()\nself.pick = lambda x: x * FACTOR"
    text = module_text(
        "return self.pick(self.options['acts'][0](x)) * self.kind.gain + self.options['slope']",
        init=init,
    )
    text = text.replace(
        "class Model",
        "FACTOR = 2\n\n\nclass Kind:\n    def __init__(self, gain=1.5):\n        self.gain = gain\n\n\nclass Model",
    )
    block = Counting(text, torch.randn(4))
    x = torch.randn(4)
    agree(block, x, fused=True)
    for change in (
        lambda m: m.options.update(slope=0.2),
        lambda m: m.options.update(acts=[torch.tanh]),
        lambda m: setattr(m.kind, "gain", 3.0),
        lambda m: setattr(m, "pick", lambda x: x + 1),
    ):
        block.reference = run_source(text).Model().eval()
        other = block.module.ModelNew().eval()
        change(block.reference), change(other)
        agree(block, x, fused=False, model=other)


FUNCTION = """\"\"\"Ünïcode: größer → ∑.\"\"\"
from __future__ import annotations

import torch
from dataclasses import replace

SCALE = 2.0


def softplus_gate(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    return torch.log1p(torch.exp(x)) * SCALE * (1 if y is None else y)


if __name__ == "__main__":
    raise SystemExit("must not run")
"""


@torch.no_grad()
def test_plain_functions_future_imports_unicode_and_a_main_block(
    capfd: pytest.CaptureFixture[str],
) -> None:
    block = Counting(FUNCTION, torch.randn(3, 5), entry="softplus_gate")
    x = torch.randn(3, 5)
    agree(block, x, fused=True)
    agree(block, x, torch.randn(5), fused=False)
    agree(block, torch.randn(2, 5), fused=False)
    assert dict(block.new.state_dict()) == {}
    # The file's own `replace` is left unchanged.
    assert block.module.replace.__module__ == "dataclasses"
    # It has the function's calling convention.
    new = block.module.softplus_gate_new
    assert inspect.signature(new) == inspect.signature(block.module.softplus_gate) and new.__doc__
    assert torch.allclose(new(x), block.module.softplus_gate(x), atol=1e-6)
    capfd.readouterr()
    assert block.module.dvk_replace() is new is block.module.dvk_replace(block.module.softplus_gate)
    assert capfd.readouterr().err.count("import `softplus_gate_new`") == 2
    assert (
        block.module.dvk_replace(torch.sin, quiet=True) is torch.sin and not capfd.readouterr().err
    )
    assert block.module.dvk_replace(len) is len and "left `len` as before" in capfd.readouterr().err


@torch.no_grad()
def test_works_when_the_users_file_imports_everything() -> None:
    text = "from torch import *\nfrom torch.nn import *\nfrom math import *\n" + module_text(
        "return relu(x) * sqrt(2)"
    )
    agree(Counting(text, torch.randn(5)), torch.randn(5), fused=True)


PLAIN = "def {entry}({names}):\n    return ({first} * 2{more}).softmax(1)\n"
WITHIN = "class {entry}(torch.nn.Module):\n    def forward(self, {names}):\n        return ({first} * 2{more}).softmax(1)\n"
TAKEN = [
    "args",
    "kwargs",
    "names",
    "name",
    "self",
    "convert",
    "held",
    "os",
    "sys",
    "Any",
    "dvk_config",
    "type",
    "ModelNew",
]
"""Names that a drop-in uses itself."""


@torch.no_grad()
@pytest.mark.parametrize("form", [PLAIN, WITHIN], ids=["function", "module"])
def test_the_users_names_may_be_those_that_a_drop_in_uses(form: str) -> None:
    x = torch.randn(4, 8)

    def fused(text: str, entry: str, *args: torch.Tensor) -> None:
        case = Counting("import torch\n\n\n" + text, *args, entry=entry)
        for given in (args, [a[:2] for a in args]):
            ran, got = case.fused(*given)
            assert ran is (given is args), entry
            assert differences(got, case.reference(*given)) == [], entry
        inspect.signature(case.new.forward)

    for name in TAKEN:
        fused(form.format(entry=name, names="x", first="x", more=""), name, x)
        if name not in ("self", "ModelNew"):
            fused(
                f"{name} = 3.0\n"
                + form.format(entry="Own", names="x", first="x", more=f" * {name}"),
                "Own",
                x,
            )
    fused(
        form.format(
            entry="Own",
            names="args, len, arg_len, k0, run_k0, dvk_tensors",
            first="args",
            more=" + len - k0 * run_k0",
        ),
        "Own",
        *[x] * 6,
    )


INSIDE = """
from collections import (
    OrderedDict,  # on several lines
)
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super(ModelNew, self).__init__()
        self.inner = torch.nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.inner(x)) * 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.Sequential(OrderedDict(one=ModelNew(8), other=ModelNew(8)))

    def forward(self, x):
        return torch.softmax(self.parts(x), -1)
"""


@torch.no_grad()
def test_a_module_may_consist_of_others_called_model_new() -> None:
    x = torch.randn(4, 8)
    case = Counting(INSIDE, x, entry="Net")
    ran, got = case.fused(x)
    assert ran and differences(got, case.reference(x)) == []
    assert {type(part).__name__ for part in case.new.parts} == {"dvk_ModelNew"}


def test_a_triton_drop_in_leaves_names_of_the_users_alone() -> None:
    source = "import torch\n\nk0, tl, run_k0 = 2.0, 3.0, 4.0\n\n\ndef f(x):\n    return (x * k0 * tl * run_k0).softmax(1)\n"
    captured = trace_module(Function(run_source(source).f), [torch.randn(4, 8)], ["x"])
    task = Task(id="test", name="test", source=source, entry="f", kind="function", device="cuda")
    text = compose(
        task, captured, Plan(applicable(captured.graph, "cuda", "triton")), "triton"
    ).source
    tree = ast.parse(text.replace(source.strip(), ""))
    assert not {"k0", "tl", "run_k0"} & {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
    }
    assert "import triton.language as dvk_tl\n" in text and "def dvk_k0(" in text


def test_a_drop_in_for_gpus_computes_the_original_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = "import torch\n\n\ndef f(x, y):\n    return (x + y).softmax(1)\n"
    args = torch.randn(4, 8), torch.randn(4, 8)
    captured = trace_module(Function(run_source(source).f), list(args), ["x", "y"])
    task = Task(id="test", name="test", source=source, entry="f", kind="function", device="cuda")
    made = run_source(
        compose(task, captured, Plan(applicable(captured.graph, "cuda", "cuda")), "cuda").source
    )

    def absent() -> int:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch.cuda, "current_device", absent)
    assert torch.equal(made.ModelNew()(*args), made.f(*args))


CHILD = """
import sys, torch, best
model = best.ModelNew().eval()
x = torch.arange(32.).view(4, 8) / 32
with torch.no_grad():
    got, want = model(x), best.Model.forward(model, x)
assert "dvk" not in sys.modules
print(model._dvk_ready, torch.allclose(got, want, atol=1e-5))
"""


@pytest.mark.slow
def test_two_processes_may_compile_the_same_source_at_once(block: Counting, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (tmp_path / "best.py").write_text(block.candidate.source, encoding="utf-8")
    env = {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "DVK_CACHE": str(cache)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD],
            cwd=tmp_path,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in running:
        out, error = process.communicate(timeout=120)
        assert out.split() == ["True", "True"], error
    assert len(list((cache / "cpp").iterdir())) == 1


@torch.no_grad()
@pytest.mark.parametrize(
    "name,value,said",
    [
        ("PATH", "", r"no C\+\+ compiler found"),
        ("CXX", "/no/such/compiler", "running the original"),
        ("CXX", "false", r"the C\+\+ compiler failed"),
        ("CXX", "g++ --no-such-option", "compiler failed"),
    ],
)
def test_without_a_compiler_it_warns_once_and_computes_the_original(
    block: Counting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setenv("DVK_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(name, value)
    fresh = run_source(block.candidate.source).ModelNew().eval()
    fresh.load_state_dict(block.reference.state_dict())
    x = torch.randn(4, 8)
    with pytest.warns(UserWarning, match=said):
        got = fresh(x)
    assert differences(got, block.reference(x)) == [] and fresh._dvk_ready is False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh(x)


@torch.no_grad()
def test_a_compiler_with_options_works(
    block: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVK_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "g++ -O1")
    fresh = run_source(block.candidate.source).ModelNew().eval()
    fresh(torch.randn(4, 8))
    assert fresh._dvk_ready is True


@torch.no_grad()
def test_strict_mode_raises_when_the_compiler_fails(
    block: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("DVK_CACHE", str(tmp_path)), ("CXX", "false"), ("DVK_STRICT", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match="compiler failed"):
        run_source(block.candidate.source).ModelNew().eval()(torch.randn(4, 8))


@torch.no_grad()
def test_no_warnings_while_it_works(block: Counting) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        block.fused(torch.randn(4, 8))


def test_kernels_come_first_then_the_module_the_original_and_guards(block: Counting) -> None:
    text = block.candidate.source
    banner = f"generated by dvk {dvk.__version__}"
    order = [
        'extern "C" void k0',
        "class ModelNew:",
        BLOCK.strip(),
        banner,
        "def dvk_config",
        "class ModelNew(",
        "def replace(",
    ]
    assert [text.index(one) for one in order] == sorted(text.index(one) for one in order)
    assert "dvk.composer" not in text and str(Path.home()) not in text


@torch.no_grad()
def test_transforms_take_the_original(block: Counting) -> None:
    x = torch.randn(4, 8)
    assert block.fused(x)[0]
    was, (value, tangent) = block.runs, torch.func.jvp(block.new, (x,), (torch.ones_like(x),))
    expected = torch.func.jvp(block.reference, (x,), (torch.ones_like(x),))
    assert (
        block.runs == was and torch.equal(value, expected[0]) and torch.equal(tangent, expected[1])
    )
    rows = torch.randn(3, 4, 8)
    assert (
        torch.equal(torch.vmap(block.new)(rows), torch.vmap(block.reference)(rows))
        and block.runs == was
    )


def test_a_plain_tensor_that_wants_gradients_takes_the_original() -> None:
    source = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.full((8,), 2.0, requires_grad=True)
    def forward(self, x):
        return torch.sigmoid(x * self.scale) + x
"""
    counting = Counting(source, torch.randn(4, 8))
    was, result = counting.fused(torch.randn(4, 8))
    assert not was and result.requires_grad
    with torch.no_grad():
        assert counting.fused(torch.randn(4, 8))[0]


@pytest.mark.parametrize("spelt", ["torch.{}", "asks"])
@pytest.mark.parametrize("name", ["is_grad_enabled", "is_inference_mode_enabled"])
def test_code_that_reads_the_gradient_mode_sees_that_of_the_call(name: str, spelt: str) -> None:
    text = module_text(
        f"return torch.tanh(x) * 2 if {spelt.format(name)}() else torch.sigmoid(x) * 3"
    )
    counting = Counting(f"from torch import {name} as asks\n{text}", torch.randn(4, 8))
    x = torch.randn(4, 8)
    modes = {
        "": torch.enable_grad(),
        "is_grad_enabled": torch.no_grad(),
        "is_inference_mode_enabled": torch.inference_mode(),
    }
    as_captured = {"is_grad_enabled": [*modes][1:], "is_inference_mode_enabled": [*modes][:2]}[name]
    for mode, context in modes.items():
        with context:
            agree(counting, x, fused=mode in as_captured)


def test_reads_by_torch_alone_are_no_condition() -> None:
    text = module_text(
        "with torch.no_grad():\n    return torch.relu(self.norm(x)) + 1",
        init="self.norm = nn.LayerNorm(8)",
    )
    counting = Counting(text, torch.randn(4, 8))
    counting.new.requires_grad_(False)
    assert counting.fused(torch.randn(4, 8))[0]


@torch.no_grad()
def test_a_files_docstring_and_future_imports_hold_below_other_text() -> None:
    text = (
        '"""Four."""\nfrom __future__ import annotations; from __future__ import (\n    division,\n)  # why\nimport torch\n\n'
        "TOLD = __doc__.splitlines()[0]\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x: Tensor):\n"
        "        return torch.tanh(x) * 2 + len(TOLD)\n"
    )
    block = Counting(text, torch.randn(4, 8))
    agree(block, torch.randn(4, 8), fused=True)
    assert block.module.__doc__ == "Four."
