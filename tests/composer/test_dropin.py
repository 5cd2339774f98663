"""Drop-ins replace the module everywhere: same results where they are fused, the original otherwise."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import dvk
from tests.composer.dropins import BLOCK, Counting, agree, module_text
from tests.composer.programs import differences, run_source


@torch.no_grad()
def test_matches_the_captured_call(block: Counting) -> None:
    assert list(block.new.state_dict()) == list(block.reference.state_dict())
    assert inspect.signature(block.module.ModelNew) == inspect.signature(type(block.reference))
    assert inspect.signature(block.new.forward) == inspect.signature(block.reference.forward)
    agree(block, torch.randn(4, 8), fused=True)
    was, got = block.fused(x=torch.randn(4, 8))
    assert was and got.shape == (4, 8)


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


def test_is_traced_as_the_original(block: Counting) -> None:
    x = torch.randn(4, 8)
    with torch.no_grad():
        agree(block, x, fused=True)
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
        torch.testing.assert_close(block.new.state_dict()[name], value)
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
@pytest.mark.slow
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
        "def dvk_facts",
        "class ModelNew(",
        "def replace(",
    ]
    assert [text.index(one) for one in order] == sorted(text.index(one) for one in order)
    assert "dvk.composer" not in text and str(Path.home()) not in text


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
