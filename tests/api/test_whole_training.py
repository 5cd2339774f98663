"""Whole models that are made faster for training: patched blocks compute gradients, and the whole is compared with them."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from dvk.api.network import (
    examples,
    optimize_model,
    patching,
    proving,
    report,
    steps,
    trying,
    verifying,
)
from dvk.api.written import write
from dvk.composer.capture.joint import with_backward
from dvk.config import Config
from dvk.errors import UsageError
from tests.api.stacks import Stack
from tests.api.whole_models import Quick, is_installed, quickly


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Quick:
    return quickly("llama", tmp_path_factory.mktemp("llama") / "run", 1, train=True)


def test_a_patched_llama_trains(llama: Quick) -> None:
    model = llama.network.model
    assert model.training and llama.names == ("LlamaDecoderLayer",)
    assert llama.used == {"model.layers.0": True, "model.layers.1": True}
    assert [one.wrong for one in llama.checked] == ["", ""]
    assert all(0 < one.own and one.error <= one.admitted for one in llama.checked)
    ids = torch.randint(0, 128, (1, 64))

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad(set_to_none=True)
        model(ids, labels=ids, use_cache=False).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    expected = gradients()
    patching.load(llama.package).apply(model, quiet=True)
    found = gradients()
    assert model.model.layers[1].dvk_calls["kernels"] > 0
    patching.load(llama.package).remove(model)
    model.zero_grad(set_to_none=True)
    assert list(found) == list(expected) == [name for name, _ in model.named_parameters()]
    for name, one in expected.items():
        torch.testing.assert_close(found[name], one, rtol=1e-3, atol=1e-5)


def test_a_patch_with_a_wrong_gradient_is_left_out(llama: Quick, tmp_path: Path) -> None:
    package = Path(shutil.copytree(llama.package, tmp_path / "patch"))
    with (package / "LlamaDecoderLayer.py").open("a") as file:
        file.write(
            "\n_right = ModelNew._dvk_back\nModelNew._dvk_back = lambda self, given: "
            "[None if g is None else g * 1.001 for g in _right(self, given)]\n"
        )
    calls = [examples.draw(llama.network, seed) for seed in range(2)]
    subject = proving.Subject(llama.network.model, calls, package, None, Config(), train=True)
    found = proving.prove(subject, llama.names, nullcontext, lambda _: None, compiled=False)
    assert found.kept == () and found.claim is None
    assert steps.GRADIENT in found.dropped["LlamaDecoderLayer"]
    assert report.status(found) == "failed"
    outputs = verifying.check(llama.network.model, patching.load(package), calls, llama.names)
    assert [one.wrong for one in outputs] == ["", ""]  # forward alone does not show it


@pytest.mark.slow
def test_a_step_on_a_gpu_is_no_cuda_graph() -> None:
    """A replay copies arguments into its own, which autograd records as writes into what the backward needs."""
    model, call = (
        nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)),
        ([torch.ones(4, 8)], {}),
    )
    written = replace(write(model, *call), device="cuda")
    captured = trying.graph_of(model, call)
    texts = trying.drop_ins(with_backward(captured, model), written, "triton", train=True)
    assert texts and not [text for text in texts if "dvk_replay(*" in text]
    assert "dvk_replay(*" in trying.drop_ins(captured, written, "triton")[0]


class Asking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2 if torch.is_grad_enabled() else torch.sigmoid(x) * 3


def test_a_quick_composition_that_is_not_used_says_why() -> None:
    """Capture asks without gradients."""
    model, call = Asking(), ([torch.randn(4, 8, requires_grad=True)], {})
    found, text = trying.tried(model, call, write(model, *call), "cpp", train=True)
    assert text is None and "torch.is_grad_enabled()" in found.why


def test_a_step_is_timed_with_its_backward_and_leaves_the_model_as_it_was() -> None:
    model, call = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), ([torch.randn(8, 4)], {})
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fresh = list[bool]()
    weight = model[0].weight
    weight.register_hook(lambda _: fresh.append(weight.grad is None))
    names = [name for name, _ in steps.stepped(model, call, 0)]
    assert "gradient of 0.weight" in names and "buffer 1.running_mean" in names
    assert weight.grad is None and all(
        map(torch.equal, before.values(), model.state_dict().values())
    )

    class Patch:
        apply = staticmethod(lambda model, quiet, only: model)
        remove = staticmethod(lambda model: model)

    how = {"seconds": 0.0, "pairs": 5, "settled": 0.01}
    weight.grad = torch.ones_like(weight)
    with steps.kept(model):
        verifying.measure(model, Patch, call, train=True, **how)  # type: ignore[arg-type]  # stands for the package's module
    assert len(fresh) > 3 * 5 and all(fresh)
    assert torch.equal(weight.grad, torch.ones_like(weight))
    assert all(map(torch.equal, before.values(), model.state_dict().values()))


class Shifted(nn.Module):
    """Its softmax does not depend on the shift, whose gradient is rounding alone."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.shift = nn.Linear(16, 16), nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.line(x) + self.shift).softmax(-1)


def test_a_gradient_of_rounding_alone_is_compared_on_the_scale_of_the_others() -> None:
    torch.manual_seed(0)
    model, call = Shifted(), ([torch.randn(32, 16)], {})
    truth = verifying.Truths(model, steps.stepped).outputs(call, 0)
    same = steps.stepped(model, call, 0)

    def compared(**changes: float) -> verifying.Checked:
        got = [(name, t + changes.get(name.rpartition(" ")[2], 0.0)) for name, t in same]
        return verifying._compared(got, same, truth, {"float32"})

    noise = float(dict(same)["gradient of shift"].abs())
    assert 0 < noise < 1e-4 and compared().own < 1e-5
    assert compared(shift=3 * noise).wrong == ""
    assert "gradient of shift" in compared(shift=0.1).wrong


class Gates(nn.Module):
    """The first eight units nearly reach the first of four tokens, and no other."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 64, bias=False)
        dice = torch.Generator().manual_seed(0)
        self.x = torch.randn(4, 8, generator=dice).bfloat16()
        with torch.no_grad():
            weight = torch.randn(64, 8, generator=dice).bfloat16()
            self.x[:, 6], self.x[:, 7] = torch.tensor([0, 9, 9, 9]), torch.tensor([1, 0, 0, 0])
            self.x[0, :2] = 1
            weight[:8, 1:] = 0
            weight[:8, 1], weight[:8, 6], weight[:8, 7] = -weight[:8, 0], -9, -(2**-12)
            self.up.weight.copy_(weight)
        self.bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.up(x))


@pytest.mark.parametrize("shift, wrong", [(0.0, False), (-1.0, True)])
def test_a_unit_of_a_relu_may_reach_a_token_where_rounding_decides(
    shift: float, wrong: bool
) -> None:
    """A row of the weight's gradient is then another, of any size."""
    model = Gates()
    with torch.no_grad():
        model.up.weight[:8, 7] += shift  # farther from the token than rounding
    call = ([model.x], {})
    truths = verifying.Truths(model, steps.stepped)
    truth, same = truths.outputs(call, 0), steps.stepped(model, call, 0)
    got = [(name, t.clone()) for name, t in same]
    (along,) = steps.cotangents([model(model.x)])
    dict(got)["gradient of up.weight"][3] += along[0, 3] * model.x[0]
    dict(same)["gradient of up.weight"][5] += along[0, 5] * model.x[0] / 8
    varied = partial(truths.varied, call, 0)
    assert bool(verifying._compared(got, same, truth, {"bfloat16"}, varied).wrong) is wrong
    assert "up.weight" in verifying._compared(got, same, truth, {"bfloat16"}).wrong


def test_other_roundings_are_those_of_results_and_their_gradients_too() -> None:
    model = nn.Sequential(nn.Tanh(), nn.Linear(4, 2, bias=False)).bfloat16()
    model[1].weight.data.zero_()
    call = ([torch.randn(8, 4).bfloat16()], {})
    truths = verifying.Truths(model, steps.stepped)
    truth = dict(truths.outputs(call, 0) or [])["gradient of 1.weight"]
    others = torch.stack([one["gradient of 1.weight"] for one in truths.varied(call, 0)])
    off = (others - truth).abs().amax(0)
    assert bool((off > 0).all()) and bool((off < 2**-6 * truth.abs().amax()).all())


@pytest.mark.parametrize("off, wrong", [(0.03, False), (0.3, True)])
def test_rows_of_a_gradient_that_cancel_have_the_rounding_of_the_others(
    off: float, wrong: bool
) -> None:
    dice = torch.Generator().manual_seed(0)
    truth, noise = torch.randn(2, 64, 64, generator=dice, dtype=torch.float64)
    truth[5] *= 1e-3
    noise[5] = 0  # by chance
    same = (truth + 0.01 * noise).bfloat16()
    got = same.clone()
    got[5, 7] += off
    name = f"{steps.GRADIENT}weight"
    found = verifying._compared([(name, got)], [(name, same)], [(name, truth)], {"bfloat16"})
    assert bool(found.wrong) is wrong


def test_a_model_with_dropout_or_without_gradients_is_refused(tmp_path: Path) -> None:
    x, out = torch.randn(8, 4), tmp_path / "run"
    drops = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    with pytest.raises(UsageError, match=r"draws random numbers, as for dropout") as error:
        optimize_model(drops.train(), x, train=True, out=out)
    assert "dropout probabilities to 0" in (error.value.hint or "")
    steps.check_trainable(drops.eval(), ([x], {}))
    with pytest.raises(UsageError, match="nothing to train"):
        optimize_model(drops.requires_grad_(False), x, train=True, out=out)
    assert not out.exists()


@pytest.mark.slow
def test_a_live_model_is_made_faster_for_training(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Stack(), torch.randn(2048, 64)
    how = {"judge.claim_s": 0.1, "optimize.budget_s": 20.0}
    result = optimize_model(model, x, train=True, out=tmp_path / "run", settings=how)
    assert result.summary["train"] and not result.summary["no_truth"]
    assert all(p.grad is None for p in model.parameters())
    assert any(row["patched"] for row in result.summary["blocks"])
    assert result.summary["speedup"] and result.summary["own_error"] > 0
    expected = dict(steps.stepped(model, ([x], {}), 0))
    patched = result.apply(model)
    for name, value in steps.stepped(patched, ([x], {}), 0):
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-3)
    again = optimize_model(model, x, train=True, out=tmp_path / "run", settings=how, resume=True)
    assert again.summary == result.summary


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["gpt2", *(pytest.param(one, marks=pytest.mark.hand) for one in ("bert", "t5", "vit", "clip"))],
)
def test_other_architectures_are_patched_and_train(name: str, tmp_path: Path) -> None:
    if not is_installed(name):
        pytest.skip(f"{name}: its library is not installed")
    found = quickly(name, tmp_path / "run", train=True)
    assert found.names and any(found.used.values()), found.why
    assert [one.wrong for one in found.checked] == ["", ""]
