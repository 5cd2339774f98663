"""Drop-ins compute the original for calls that differ from the captured one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dvk.composer.capture.reads import Reads, wanted
from dvk.composer.runtime.facts import dvk_described
from tests.composer.dropins import BLOCK, Counting, agree, module_text
from tests.composer.programs import run_source

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
@pytest.mark.slow
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


def test_code_that_reads_the_gradient_mode_and_computes_the_same_in_both_is_fused_in_both() -> None:
    text = module_text(
        "if torch.is_grad_enabled() and self.saving:\n    raise RuntimeError\nreturn torch.tanh(x) * 2",
        init="self.saving = False",
    )
    counting = Counting(text, torch.randn(4, 8))
    for mode in (torch.enable_grad(), torch.no_grad()):
        with mode:
            agree(counting, torch.randn(4, 8), fused=True)


def test_reads_by_torch_alone_are_no_condition() -> None:
    text = module_text(
        "with torch.no_grad():\n    return torch.relu(self.norm(x)) + 1",
        init="self.norm = nn.LayerNorm(8)",
    )
    counting = Counting(text, torch.randn(4, 8))
    counting.new.requires_grad_(False)
    assert counting.fused(torch.randn(4, 8))[0]


def test_a_layer_of_another_library_is_told_from_torchs_by_more_than_its_name() -> None:
    counting = Counting(
        module_text("return torch.relu(self.line(x)) + 1", init="self.line = nn.Linear(8, 8)"),
        torch.randn(4, 8),
    )
    counting.new.requires_grad_(False)
    assert counting.fused(torch.randn(4, 8))[0]

    class Linear(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    counting.new.line = Linear(8, 8)
    assert not counting.fused(torch.randn(4, 8))[0]
    assert "`line` is Linear; the kernels were made for torch.Linear" in counting.new.dvk_why(
        torch.randn(4, 8)
    )


def test_checkpoints_of_transformers_around_a_layer_are_no_condition() -> None:
    class GradientCheckpointingLayer(nn.Module):
        gradient_checkpointing = False

    class Layer(GradientCheckpointingLayer):
        pass

    model = nn.Sequential(Layer())
    found: Reads = {id(one): {"gradient_checkpointing": None} for one in (model, model[0])}
    assert "gradient_checkpointing" in wanted(model, found, (), ())["0"]  # inside of what is fused
    assert wanted(model[0], found, (), ()) == {}


def test_facts_of_a_builtin_function_are_short() -> None:
    assert len(dvk_described(nn.functional.gelu, 0)) < 500


def test_reasons_name_surplus_arguments_and_show_tensors_by_their_shapes() -> None:
    counting = Counting(
        module_text("return torch.relu(x) + 1", params="x, mask=None, **more"),
        torch.randn(4, 8),
        None,
    )
    why, x = counting.new.dvk_why, torch.randn(4, 8)
    assert why(x, None) == "the kernels run"
    assert "other arguments: `count`; kernels exist for (x, mask)" in why(x, None, count=3)
    assert "mask is bool[4,8]; kernels exist for None" in why(x, x > 0)
