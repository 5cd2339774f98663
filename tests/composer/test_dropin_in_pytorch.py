"""What users of PyTorch do with a module, done with a drop-in: the kernels run, or it says why not; results are the original's."""

from __future__ import annotations

import copy
import io
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from tests.composer.dropins import BLOCK, Counting, agree, module_text
from tests.composer.programs import differences, run_source
from tests.composer.sized_models import SizedModel

RUNS = "the kernels run"


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def x() -> torch.Tensor:
    return torch.randn(4, 8)


def works(block: Counting, model: Any = None, fused: bool = True, why: str = "") -> None:
    """The drop-in agrees with the reference, runs its kernels or not, and says so."""
    model = block.new if model is None else model
    given = x()
    agree(block, given, fused=fused, model=model)
    told = model.why(given)
    assert (told == RUNS) is fused and why in told, told


# ---------------------------------------------------------------- what changes nothing


def test_names_that_forward_does_not_read_are_no_condition(block: Counting) -> None:
    new = block.new
    works(block)
    new.label, new.cached = "mine", {}
    new._is_hf_initialized = new.norm._is_hf_initialized = True
    new.layers[0].note = torch.ones(3)
    new.register_buffer("steps", torch.zeros(3))
    new.register_parameter("unused", nn.Parameter(torch.ones(2)))
    new.head = nn.Linear(2, 2)
    works(block)
    works(block, new.train().eval())


@pytest.mark.parametrize("called_before", [False, True])
@pytest.mark.parametrize(
    "set_it",
    [
        lambda m: setattr(m.norm, "eps", 0.5),
        lambda m: setattr(m, "_slope", 0.7),
        lambda m: setattr(m.layers[0], "forward", lambda x: x * 3),
        lambda m: setattr(m, "norm", nn.LayerNorm(8, eps=0.3)),
        lambda m: setattr(m, "gains", nn.ParameterList([torch.ones(8), torch.ones(8)])),
    ],
    ids=["an attribute of a part", "its own attribute", "a method", "a part", "a longer list"],
)
def test_names_that_forward_reads_are(
    block: Counting, set_it: Callable[[nn.Module], None], called_before: bool
) -> None:
    if called_before:
        works(block)
    set_it(block.new), set_it(block.reference)
    if isinstance(block.new.gains, nn.ParameterList) and len(block.new.gains) == 2:
        block.new.gains.load_state_dict(block.reference.gains.state_dict())
    works(block, fused=False, why="the kernels were made for")


def test_an_attribute_that_is_put_back_brings_the_kernels_back(block: Counting) -> None:
    for model in (block.new, block.reference):
        model.norm.eps = 0.5
    works(block, fused=False, why="`norm.eps` is 0.5; the kernels were made for 1e-05")
    for model in (block.new, block.reference):
        model.norm.eps = 1e-5
    works(block)
    block.new.norm, block.reference.norm = nn.LayerNorm(8), nn.LayerNorm(8)
    works(block)


def test_a_name_that_was_absent_and_a_class_attribute_are_read_too() -> None:
    text = module_text(
        "y = torch.tanh(x) * self.scale\nreturn y * 2 if getattr(self, 'twice', False) else y - 1"
    ).replace("class Model(nn.Module):\n", "class Model(nn.Module):\n    scale = 3.0\n\n")
    case = Counting(text, x())
    works(case)
    for name, value in (("twice", True), ("scale", 2.0)):
        setattr(case.new, name, value), setattr(case.reference, name, value)
        works(case, fused=False, why=f"`{name}` is {value}")
        delattr(case.new, name), delattr(case.reference, name)
        works(case)


def test_modules_that_look_at_all_their_weights_or_parts_depend_on_them() -> None:
    text = module_text(
        "y = torch.sigmoid(x).to(next(self.parameters()).dtype)\n"
        "for part in self.children():\n    y = torch.tanh(part(y)) * 2\nreturn y",
        init="self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)",
    )
    case = Counting(text, x())
    works(case)
    case.new.three = case.reference.three = nn.Linear(8, 8)
    works(case, fused=False)


def test_a_mode_counts_only_if_it_is_read(block: Counting) -> None:
    plain = Counting(
        module_text("return torch.tanh(self.norm(x)) * x", init="self.norm = nn.LayerNorm(8)"),
        x(),
        training=True,
    )
    works(plain, plain.new.eval())
    outer = nn.Sequential(run_source(BLOCK).Model(), nn.ReLU()).eval()
    block.module.replace(outer, quiet=True)
    assert block.fused(x(), model=outer)[0] and outer[0].why(x()) == RUNS
    outer[0].train()
    assert "`drop` is in train mode; the kernels were made for eval mode" in outer[0].why(x())


# ---------------------------------------------------------------- what a call may be


def test_a_fallback_is_reported_once_and_counted(block: Counting) -> None:
    block.module.dvk_said.clear()
    works(block)
    ran = block.new.dvk_calls["kernels"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for rows in (5, 5, 6):
            block.new(torch.randn(rows, 8))
        block.new(torch.randn(8, 4).t())
    texts = [str(one.message) for one in told]
    assert len(texts) == 2 and told[0].filename == __file__
    assert (
        "runs the original: x is float32[5,8]; kernels exist for float32[4,8]. "
        "Make one: dvk optimize … --also 'x=float32[5,8]'" in texts[0]
    )
    assert "x.contiguous()" in texts[1]
    assert block.new.dvk_calls == {"kernels": ran, "shape of x": 3, "strides of x": 1}


@pytest.mark.parametrize("under", [lambda net: net, torch.compile], ids=["direct", "compiled"])
@pytest.mark.slow
def test_the_stride_of_a_dimension_of_one_says_nothing(under: Callable[[Any], Any]) -> None:
    """A batch of one that comes out of a transposed product has another stride there than a tensor that was allocated."""
    odd = torch.randn(1, 8, 6, 4).as_strided((1, 8, 6, 4), (3, 24, 4, 1))
    one = Counting(
        module_text("return torch.tanh(self.down(x)) * 2", init="self.down = nn.Conv2d(8, 8, 1)"),
        odd.contiguous().clone(),
    )
    assert one.new.why(odd) == RUNS
    with torch.no_grad():
        torch.testing.assert_close(under(one.new)(odd), one.reference(odd))
    assert not one.new.dvk_calls.keys() - {"kernels"}
    turned = torch.randn(1, 8, 4, 6).transpose(2, 3)
    assert "has strides" in one.new.why(turned)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: (torch.randn(4, 8).double(),), "x is float64[4,8]"),
        (lambda: (torch.randn(4, 8).to_sparse(),), "sparse"),
        (lambda: (torch.randn(4, 8, device="meta"),), "x is on meta; kernels exist for cpu"),
        (lambda: (nn.Parameter(torch.randn(4, 8)),), "x is a Parameter"),
        (lambda: (torch.randn(4, 8), torch.randn(4, 8)), "other arguments"),
        (lambda: (3,), "x is a int"),
    ],
)
def test_each_difference_of_an_input_is_named(
    block: Counting, make: Callable[[], tuple[Any, ...]], why: str
) -> None:
    assert why in block.new.why(*make())


def test_values_and_structures_are_named() -> None:
    case = Counting(module_text("return torch.tanh(x['a']) * k + 1", "x, k"), {"a": x()}, 2.0)
    assert case.new.why({"a": x()}, 2.0) == RUNS
    assert "k is 3.0; kernels exist for 2.0" in case.new.why({"a": x()}, 3.0)
    assert "structure" in case.new.why([x()], 2.0)
    assert "x.a is float32[3,8]" in case.new.why({"a": torch.randn(3, 8)}, 2.0)


def test_contexts_are_named(block: Counting) -> None:
    with torch.enable_grad():
        assert "gradients are wanted, of `norm.weight` and 6 more" in block.new.why(x())
        block.new.requires_grad_(False)
        works(block)
        assert "an argument" in block.new.why(x().requires_grad_())
    with torch.inference_mode():
        works(block)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        works(block, fused=False, why="autocast")
    told: list[str] = []

    def asks(row: torch.Tensor) -> torch.Tensor:
        told.append(block.new.why(row))
        return block.new(row)

    rows = torch.randn(3, 4, 8)
    assert torch.allclose(torch.func.vmap(asks)(rows), block.reference(rows), atol=1e-5)
    with torch.enable_grad():
        torch.func.grad(lambda row: asks(row).sum())(x())
    torch.func.jvp(asks, (x(),), (x(),))
    assert all("torch.func" in one for one in told[:2]) and "forward-mode" in told[2]
    works(block)


# ---------------------------------------------------------------- weights


def test_weights_may_be_loaded_assigned_and_written(block: Counting) -> None:
    works(block)
    for assign in (False, True):
        other = {name: torch.rand_like(p) for name, p in block.new.state_dict().items()}
        for model in (block.new, block.reference):
            model.load_state_dict(copy.deepcopy(other), strict=True, assign=assign)
        works(block)
    flat = nn.utils.parameters_to_vector(block.new.parameters())
    for model in (block.new, block.reference):
        nn.utils.vector_to_parameters(flat.clone() * 1.5, model.parameters())
    block.new(x())
    works(block)
    missing = {k: v for k, v in block.new.state_dict().items() if k != "norm.bias"}
    with pytest.raises(RuntimeError, match="norm.bias"):
        block.new.load_state_dict(missing)
    works(block)


def test_tied_weights_that_an_assignment_unties_are_noticed() -> None:
    text = module_text(
        "return torch.tanh(self.b(torch.relu(self.a(x))))",
        init="self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)\nself.b.weight = self.a.weight",
    )
    case = Counting(text, x())
    works(case)
    other = {name: torch.rand_like(p) for name, p in case.new.state_dict().items()}
    for model in (case.new, case.reference):
        model.load_state_dict(copy.deepcopy(other), assign=True)
    works(case, fused=False, why="the same as a.weight")


def test_steps_of_optimizers_and_averages_of_weights_are_followed(block: Counting) -> None:
    for make in (torch.optim.SGD, torch.optim.AdamW):
        for model in (block.new, block.reference):
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            make(model.parameters(), lr=0.1).step()
        works(block)
    average = torch.optim.swa_utils.AveragedModel(
        block.new, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    average.update_parameters(block.new)
    works(block, average.module)


def test_other_types_and_devices_fall_back_and_return(block: Counting) -> None:
    works(block)
    for model in (block.new, block.reference):
        model.half()
    given = x().half()
    assert torch.equal(block.new(given), block.reference(given))
    assert "x is float16[4,8]" in block.new.why(given)
    assert "`norm.weight` is float16[8] on cpu" in block.new.why(x())
    for model in (block.new, block.reference):
        model.to(dtype=torch.float32, device="cpu")
    works(block)
    assert "on meta" in copy.deepcopy(block.new).to("meta").why(x().to("meta"))


def test_transposed_weights_are_named(block: Counting) -> None:
    for model in (block.new, block.reference):
        model.gains[0] = nn.Parameter(torch.rand(8, 2)[:, 0])
    block.new.gains[0] = block.reference.gains[0]
    assert "`gains.0` is float32[8] with strides (2,)" in block.new.why(x())
    assert differences(block.new(x()), block.new(x())) != [] and not block.fused(x())[0]


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm", "old"])
def test_parametrisations_fall_back(block: Counting, kind: str) -> None:
    works(block)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    for model in (block.new, block.reference):
        torch.set_rng_state(state)
        if kind == "old":
            nn.utils.spectral_norm(model.layers[0]).eval()
        else:
            getattr(parametrizations, kind)(model.layers[0]).eval()
    works(block, fused=False, why="hooks" if kind == "old" else "ParametrizedLinear")
    if kind == "weight_norm":
        for model in (block.new, block.reference):
            nn.utils.parametrize.remove_parametrizations(model.layers[0], "weight")
        works(block)


# ---------------------------------------------------------------- hooks, wrappers, copies


def test_hooks(block: Counting) -> None:
    seen: list[str] = []
    block.new.register_forward_hook(lambda *_: seen.append("own"))
    block.new.register_full_backward_hook(lambda *_: seen.append("backward"))
    block.new.layers[0].register_full_backward_hook(lambda *_: seen.append("part"))
    works(block)
    with torch.enable_grad():
        block.new(x()).sum().backward()
    assert seen.count("own") == 2 and {"backward", "part"} <= set(seen)
    handle = block.new.norm.register_forward_pre_hook(lambda *_: seen.append("pre"))
    works(block, fused=False, why="hooks are set, on `norm`")
    assert "pre" in seen
    handle.remove()
    works(block)


def test_compiling_leaves_the_drop_in_as_it_was(block: Counting) -> None:
    given = x()
    compiled = torch.compile(block.new, backend="eager")
    assert torch.allclose(compiled(given), block.reference(given), atol=1e-5)
    works(block)


@pytest.mark.slow
def test_copies_of_a_module_that_was_compiled_in_place_are_not(block: Counting) -> None:
    given = x()
    block.new.compile(backend="eager")
    assert torch.allclose(block.new(given), block.reference(given), atol=1e-5)
    works(block, copy.deepcopy(block.new))


def test_copies_run_the_kernels(block: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, block.module.__name__, block.module)
    works(block)
    kept = io.BytesIO()
    torch.save(block.new, kept)
    kept.seek(0)
    works(block, torch.load(kept, weights_only=False))
    works(block, copy.deepcopy(block.new))
    assert copy.copy(block.new).why(x()) == RUNS


def test_a_call_with_other_weights(block: Counting) -> None:
    works(block)
    other = {name: torch.rand_like(p) for name, p in block.new.named_parameters()}
    given = x()
    got = torch.func.functional_call(block.new, other, (given,))
    assert differences(got, torch.func.functional_call(block.reference, other, (given,))) == []
    works(block)


def test_threads_share_a_drop_in(block: Counting) -> None:
    given, wrong = [x() for _ in range(2)], []
    want = [block.reference(one) for one in given]

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(200):
                got = block.new(given[number])
                if not torch.allclose(got, want[number], atol=1e-5):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and block.new.dvk_calls["kernels"] > 0


def test_sizes_outside_of_a_range_are_named() -> None:
    sized = SizedModel("return torch.tanh(x) * 2 + 1", "x=float32[rows:2..64, 8]")
    assert sized.new.why(torch.randn(64, 8)) == RUNS
    told = sized.new.why(torch.randn(65, 8))
    assert "x is float32[65,8]; kernels exist for float32[rows:2..64,8]" in told
    assert "strides (1, 7); kernels exist for (8, 1)" in sized.new.why(torch.randn(8, 7).t())
