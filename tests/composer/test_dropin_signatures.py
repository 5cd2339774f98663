"""Drop-ins around files of any shape: arguments, attributes, functions, names that users and drop-ins share."""

from __future__ import annotations

import ast
import inspect

import pytest
import torch

from dvk.composer import Plan, applicable, compose
from dvk.composer.capture.export import trace_module
from dvk.records import Task
from tests.composer.dropins import Counting, agree, module_text
from tests.composer.programs import Function, differences, run_source


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
    "dvk_facts",
    "type",
    "ModelNew",
]
"""Names that a drop-in uses itself."""


@torch.no_grad()
@pytest.mark.parametrize("form", [PLAIN, WITHIN], ids=["function", "module"])
@pytest.mark.slow
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
