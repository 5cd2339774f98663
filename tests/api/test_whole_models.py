"""Real architectures with small random configurations: blocks are captured and composed, all instances patched, the whole is right."""

from __future__ import annotations

import copy
import shutil
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path

import pytest
import torch

from dvk.api.network import examples, patching, proving, reading, report, rounding, verifying
from dvk.api.network.building import build
from dvk.config import Config
from dvk.harness.checking.compare import Difference, ExpectedLeaf, scales, values
from dvk.harness.checking.tolerance import Errors
from tests.api.whole_models import MODELS, Quick, is_installed, quickly, source_of


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Quick:
    return quickly("llama", tmp_path_factory.mktemp("llama") / "run", 1)


def test_a_llama_is_patched_by_its_layers_and_computes_the_same(llama: Quick) -> None:
    found = llama
    model = found.network.model
    assert found.names == ("LlamaDecoderLayer",)
    assert found.used == {"model.layers.0": True, "model.layers.1": True}
    assert [one.wrong for one in found.checked] == ["", ""]
    assert all(0 < one.own and one.error <= one.admitted for one in found.checked)
    # The package is what users import: state, copies and weights are those of the model.
    patch = patching.load(found.package)
    before = {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}
    ids = torch.randint(0, 128, (1, 64))
    with torch.no_grad():
        expected = model(ids, use_cache=False).logits
        other = model(ids[:, :7]).logits
        assert patch.apply(model, quiet=True) is model
        assert {n: id(t) for n, t in model.state_dict(keep_vars=True).items()} == before
        torch.testing.assert_close(
            model(ids, use_cache=False).logits, expected, rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(model(ids[:, :7]).logits, other)  # another size, a cache
        twin = copy.deepcopy(model)
        torch.testing.assert_close(
            twin(ids, use_cache=False).logits, expected, rtol=1e-4, atol=1e-5
        )
        patch.remove(model)
        # Names, versions and labels of a configuration are not read: pretrained weights bring others.
        model.config.name_or_path = model.config.transformers_version = "another"
        patch.apply(model, quiet=True)
        assert torch.equal(model(ids, use_cache=False).logits, twin(ids, use_cache=False).logits)
        assert model.model.layers[1]._dvk_ready
        patch.remove(model)
        model.config._attn_implementation = "eager"
        patch.apply(model, quiet=True)
        assert type(model.model.layers[0]).__name__ == "LlamaDecoderLayer"
        model.config._attn_implementation = "sdpa"
    assert type(model.model.layers[0]).__name__ == "LlamaDecoderLayer"


def test_a_patch_with_which_the_whole_is_wrong_is_left_out(llama: Quick, tmp_path: Path) -> None:
    package = Path(shutil.copytree(llama.package, tmp_path / "patch"))
    with (package / "LlamaDecoderLayer.py").open("a") as file:
        file.write(
            "\n_right = ModelNew._dvk_run\nModelNew._dvk_run = lambda self, *given: _right(self, *given) * 1.001\n"
        )
    calls = [examples.draw(llama.network, seed) for seed in range(2)]
    subject = proving.Subject(llama.network.model, calls, package, None, Config())
    found = proving.prove(subject, llama.names, nullcontext, lambda _: None, compiled=False)
    assert found.kept == () and found.claim is None
    assert found.dropped["LlamaDecoderLayer"].startswith(proving.WRONG)
    assert report.status(found) == "failed"


def test_what_quick_compositions_leave_in_modules_does_not_hide_the_truth(llama: Quick) -> None:
    layer = llama.network.model.model.layers[0]
    layer.__dict__["_dvk_made"] = threading.Lock()  # like a CUDA graph: it cannot be copied
    patch, call = patching.load(llama.package), examples.draw(llama.network, 0)
    (checked,) = verifying.check(llama.network.model, patch, [call], llama.names)
    assert checked.own > 0 and checked.untrue == "" and checked.wrong == ""


def test_a_model_without_float64_is_compared_with_itself_and_says_why() -> None:
    class Strict(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype is torch.float32, "float32 alone"
            return x + 1

    truths = verifying.Truths(Strict())
    assert truths.outputs(([torch.ones(3)], {}), 0) is None and "float32 alone" in truths.why


class Choosing(torch.nn.Module):
    """Each row takes one of two signs, as a token takes an expert: near the border rounding decides."""

    def __init__(self) -> None:
        super().__init__()
        self.score = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where((x * self.score).sum(-1, keepdim=True) > 0, x, -x)


def borders() -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """A model of choices, and an input whose first ten rows rounding may turn."""
    x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
    x[:, 3] = 2 - x[:, :3].sum(-1)
    x[:10, 3] -= 2 - 1e-4  # the sums of these rows are nearly 0
    return Choosing(), [x.bfloat16()]


def wrong_with(change: Callable[[torch.Tensor], None]) -> str:
    """What the comparison says of outputs that a function changed."""
    model, inputs = borders()
    call = (inputs, {})
    truths = verifying.Truths(model)
    truth, original = truths.outputs(call, 0), model(*inputs)
    got = original.detach().clone()
    change(got)
    varied = partial(truths.varied, call, 0)
    compared = [("output", got)], [("output", original)], truth, {"bfloat16"}
    return verifying._compared(*compared, varied).wrong


def test_a_choice_that_rounding_decides_is_no_error() -> None:
    assert wrong_with(lambda out: out[3].neg_()) == ""
    assert wrong_with(lambda out: out[:10].neg_()) == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda out: out[-3:].zero_(),
        lambda out: out[-3:].mul_(1.9),
        lambda out: out[:20].neg_(),
        lambda out: out[:5].mul_(9),
        lambda out: out[2].fill_(torch.nan),
    ],
    ids=["tail", "scaled", "more rows", "far off", "nan"],
)
def test_rows_that_rounding_does_not_move_are_compared_as_ever(
    change: Callable[[torch.Tensor], None],
) -> None:
    assert wrong_with(change)


def test_complex_buffers_stay_complex_in_the_truth() -> None:
    class Rotated(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.register_buffer("turn", torch.polar(torch.ones(2), torch.rand(2)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pairs = torch.view_as_complex(super().forward(x).view(-1, 2, 2))
            return torch.view_as_real(pairs * self.turn).flatten(1)

    model, x = Rotated(), torch.randn(8, 4)
    truth = verifying.Truths(model).outputs(([x], {}), 0)
    assert truth is not None
    torch.testing.assert_close(truth[0][1].float(), model(x))


class Layout(Enum):
    """As models of timm hold one."""

    FIRST = "first"


@pytest.mark.parametrize("more, cached", [((), False), (("use_cache=True",), True)])
def test_a_text_of_the_command_line_goes_through_without_a_cache(
    more: tuple[str, ...], cached: bool
) -> None:
    """A block that is called with a cache is not fused."""
    source = replace(source_of("gpt2"), inputs=("input_ids=int64[2,16]<128", *more))
    assert examples.draw(build(source), 0)[1]["use_cache"] is cached


def test_a_member_of_an_enumeration_is_no_configuration() -> None:
    model = torch.nn.Linear(2, 2)
    model.layout = Layout.FIRST  # type: ignore[assignment]
    assert reading.reads(model, (torch.ones(1, 2),), {}) == {}


IN_CI = ("gpt2", "vit", "mixtral")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in IN_CI else pytest.mark.hand)
        for name in MODELS
        if name != "llama"
    ],
)
def test_real_models_are_patched_and_compute_the_same(name: str, tmp_path: Path) -> None:
    if not is_installed(name):
        pytest.skip(f"{name}: its library is not installed")
    found = quickly(name, tmp_path / "run")
    assert found.names
    assert [one.wrong for one in found.checked] == ["", ""]
    assert any(found.used.values()), found.why


ROWS = 64
ADMITTED = Errors(0.01, 0.01)


def moved(*rows: int, by: float = 1.0) -> torch.Tensor:
    """An output of ones with these rows off."""
    output = torch.ones(ROWS, 4, dtype=torch.float64)
    output[list(rows)] += by
    return output


def left_of(
    got: torch.Tensor, others: list[torch.Tensor], admitted: Errors = ADMITTED
) -> Difference | None:
    """What is unexplained of an output, if other roundings are off like that."""
    scale, rms, _ = scales(moved())
    want = ExpectedLeaf("output", moved(), moved(), scale, rms, wide=False)
    want.admitted = admitted
    _, difference = values(got, want)
    assert difference is not None
    return rounding.unexplained(got, want, others, difference)


def test_rows_that_one_choice_moves_together_are_explained_by_other_such_choices() -> None:
    """A token that takes another expert moves all rows of that expert's gradient, and each copy may turn another token."""
    experts = [range(n, n + 8) for n in range(0, ROWS, 8)]
    copies = [moved(*rows) for rows in experts[:4]]
    assert left_of(moved(*experts[5]), copies) is None
    assert left_of(moved(*range(20, 60)), copies) is not None, "far more than a choice moves"
    assert left_of(moved(*experts[5], by=9.0), copies) is not None, "farther off"
    assert left_of(moved(*experts[5]), [moved(*experts[0])] * 4) is not None, (
        "the copies all move the same rows"
    )


def test_one_row_more_is_what_the_copies_miss() -> None:
    copies = [moved(3), moved(3), moved(7)]
    assert left_of(moved(40), copies) is None
    assert left_of(moved(40, 41, 42), copies) is not None


def test_an_output_of_few_elements_may_be_off_as_the_copies_are() -> None:
    """A router's gradient: one token's choice is a small part of each row, and a large part of the typical error."""

    def spread(by: float) -> torch.Tensor:
        return moved() + by * torch.randn(moved().shape, generator=torch.Generator().manual_seed(0))

    copies = [spread(0.006), spread(-0.009)]
    admitted = Errors(0.002, 0.2)
    assert left_of(spread(0.012), copies, admitted) is None
    assert left_of(spread(0.018), copies, admitted) is not None, "by more than √2 of the largest"
    assert left_of(spread(0.012), [spread(0.001)] * 4, admitted) is not None, "no copy is so far"
