"""Programs of drop-ins as operators of PyTorch: torch.compile, torch.export and AOTInductor keep the kernels."""

from __future__ import annotations

import gc
import types
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dvk.composer import Plan, join
from tests.composer.dropins import BLOCK, importable, module_text
from tests.composer.programs import differences, drop_in, run_source
from tests.composer.seen_operators import Seen, compiled
from tests.composer.sized_models import SizedModel
from tests.composer.traced_tasks import check, files

VIEWS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, x, by=2):
        y = torch.relu(x) * self.scale
        left, right = y.chunk(2, 1)
        return {"left": left, "both": (right, y), "input": x[1:], "weight": self.scale.view(2, 4)}
"""


class Around(nn.Module):
    """A network with two drop-ins."""

    def __init__(self, one: nn.Module, other: nn.Module):
        super().__init__()
        self.one, self.other, self.last = one, other, nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.last(self.other(self.one(x) + 1)))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(runs the original|instead of its kernels)")
        yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def shared_block() -> Seen:
    torch.manual_seed(0)
    return Seen(BLOCK, torch.randn(4, 8))


@pytest.fixture
def block(shared_block: Seen) -> Seen:
    shared_block.calls.clear()
    return shared_block


def operators_in(program: Any) -> list[str]:
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


@torch.no_grad()
def test_compiles_in_one_graph_and_runs_the_kernels(block: Seen) -> None:
    x = torch.randn(4, 8)
    call = compiled(block.new)
    assert block.ran(call, x) == 1
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert block.ran(call, x) == 1
    assert block.ran(block.new, x) == 0  # the direct path


@torch.no_grad()
def test_a_network_around_drop_ins_compiles_in_one_graph(block: Seen) -> None:
    net = Around(block.new, block.module.ModelNew().eval()).eval()
    x = torch.randn(4, 8)
    want = net(x)
    assert differences(compiled(net)(x), want) == [] and len(block.calls) == 2


@torch.no_grad()
@pytest.mark.parametrize("how", ["automatic", "marked", "dynamic"])
@pytest.mark.slow
def test_another_batch_size_runs_the_original(block: Seen, how: str) -> None:
    x, other = torch.randn(4, 8), torch.randn(6, 8)
    if how == "marked":
        torch._dynamo.mark_dynamic(x, 0)
    call = compiled(block.new, dynamic=True if how == "dynamic" else None)
    assert block.ran(call, x) == (how != "marked")
    assert block.ran(call, other) == 0
    if how == "automatic":
        assert block.ran(call, x) == 1 and block.ran(call, torch.randn(7, 8)) == 0
        assert block.ran(call, x) == 1


def test_gradients_are_computed_by_the_original(block: Seen) -> None:
    x = torch.randn(4, 8)
    compiled(block.new)(x).sum().backward()
    block.reference(x).sum().backward()
    assert block.calls == []
    pairs = zip(block.new.parameters(), block.reference.parameters(), strict=True)
    assert all(differences(a.grad, b.grad) == [] for a, b in pairs)


@torch.no_grad()
@pytest.mark.slow
def test_what_differs_runs_the_original_and_is_reported_once(block: Seen) -> None:
    x = torch.randn(4, 8)
    new = block.module.ModelNew(slope=0.5).eval()
    with pytest.warns(
        UserWarning, match="instead of its kernels: `_slope` is 0.5; the kernels were made for 0.1"
    ):
        got = compiled(new)(x)
    assert differences(got, block.module.Model.forward(new, x)) == [] and block.calls == []
    with torch.autocast("cpu", torch.bfloat16):
        compiled(block.new)(x)
    assert block.calls == []
    block.new.train()
    torch.manual_seed(0)
    got = compiled(block.new)(x)
    block.new.eval()
    assert bool((got == 0).any()) and block.calls == []


@torch.no_grad()
@pytest.mark.parametrize("strict", [False, True])
def test_export_keeps_the_operator(block: Seen, strict: bool, tmp_path: Path) -> None:
    net = Around(block.new, nn.Identity()).eval()
    x = torch.randn(4, 8)
    program = torch.export.export(net, (x,), strict=strict)
    assert block.name in operators_in(program) and "aten.layer_norm.default" not in operators_in(
        program
    )
    torch.export.save(program, tmp_path / "net.pt2")
    loaded = torch.export.load(tmp_path / "net.pt2").module()
    block.calls.clear()
    assert differences(loaded(x), net(x)) == [] and len(block.calls) == 1


@torch.no_grad()
def test_an_export_with_a_dynamic_batch_keeps_the_originals_operators(block: Seen) -> None:
    x = torch.randn(4, 8)
    shapes = ({0: torch.export.Dim("batch", max=64)}, None)
    program = torch.export.export(block.new, (x, None), dynamic_shapes=shapes)
    assert "aten.layer_norm.default" in operators_in(program)
    assert block.ran(program.module(), torch.randn(9, 8), None) == 0


class Ranged:
    """A drop-in for a range of sizes, with the calls of its operator."""

    def __init__(self, forward: str, *specs: str, **options: Any):
        self.made = SizedModel(forward, *specs, **options)
        self.module = importable(run_source(self.made.candidate.source))
        self.new = self.module.ModelNew().eval()
        self.new.load_state_dict(self.made.model.state_dict())
        name = self.module._dvk_operator_1.name
        self.known = torch.ops._dvk_operators[name]
        space, _, short = name.partition("::")
        self.operator = getattr(getattr(torch.ops, space), short).default

    def ran(self, call: Any, **sizes: int) -> int:
        """How often the operator ran in a call whose result is eager's."""
        before = self.known.calls
        args = self.made.draw(sizes)
        assert differences(call(*args), self.made.model(*args)) == []
        return self.known.calls - before


RANGED = {
    "norm": ("return F.gelu(self.n(x)) + x", ("x=float32[batch:1..300, 17, 48]",)),
    "two": ("return torch.softmax(self.n(x), -1)", ("x=float32[batch:1..40, seq:1..100, 48]",)),
    "shared": (
        "y = torch.tanh(x) * y[:, None]\nreturn y, y[1:].t(), x.sum()",
        ("x=float32[batch:2..64, 16]", "y=float32[batch]"),
    ),
    "call": ("return torch.relu(self.l(x.flatten(1))) * 2", ("x=float32[batch:1..300, 17, 48]",)),
}
LAYERS = "self.n, self.l = nn.LayerNorm(48), nn.Linear(17 * 48, 10)"


@torch.no_grad()
@pytest.mark.parametrize("name", RANGED)
@pytest.mark.slow
def test_one_compilation_serves_a_range_of_sizes(name: str) -> None:
    forward, specs = RANGED[name]
    ranged = Ranged(forward, *specs, init=LAYERS)
    call = compiled(ranged.new, dynamic=True)
    first, *others = ranged.made.sampled()
    assert ranged.ran(call, **first) == 1
    sizes = [one for one in others if min(one.values()) > 1]
    assert ranged.ran(call, **sizes[0]) == 1
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert all(ranged.ran(call, **one) == 1 for one in sizes[1:])
    seen = ranged.made.draw(sizes[-1])
    weights = [p.detach() for p in ranged.new.n.parameters()]
    if name in ("norm", "shared"):
        torch.library.opcheck(ranged.operator, [*seen, *(weights if name == "norm" else ())])


@pytest.fixture(scope="module")
def ranged_norm() -> Ranged:
    forward, specs = RANGED["norm"]
    return Ranged(forward, *specs, init=LAYERS)


@torch.no_grad()
@pytest.mark.slow
def test_a_size_outside_of_the_range_runs_the_original_inside_of_a_compiler(
    ranged_norm: Ranged,
) -> None:
    call = compiled(ranged_norm.new)
    assert ranged_norm.ran(call, batch=4) == 1
    assert ranged_norm.ran(call, batch=9) == 1  # dynamic from here
    assert ranged_norm.ran(call, batch=301) == 0
    assert ranged_norm.ran(call, batch=300) == 1
    operands = ranged_norm.made.draw({"batch": 301})
    with pytest.raises(RuntimeError, match="kernels exist for batch 1..300"):
        ranged_norm.operator(
            *operands, *[p.detach() for p in list(ranged_norm.new.parameters())[:2]]
        )


@torch.no_grad()
@pytest.mark.parametrize("most", [300, 301])
def test_an_export_with_a_dimension_within_the_range_keeps_the_operator(
    ranged_norm: Ranged, most: int, tmp_path: Path
) -> None:
    x = torch.randn(4, 17, 48)
    shapes = ({0: torch.export.Dim("batch", min=2, max=most)},)
    program = torch.export.export(ranged_norm.new, (x,), dynamic_shapes=shapes)
    assert ("aten.layer_norm.default" in operators_in(program)) == (most > 300)
    torch.export.save(program, tmp_path / "net.pt2")
    loaded = torch.export.load(tmp_path / "net.pt2").module()
    assert ranged_norm.ran(loaded, batch=11) == (most == 300)
    marked = torch.randn(4, 17, 48)
    torch._dynamo.mark_dynamic(marked, 0, min=2, max=most)
    before = ranged_norm.known.calls
    compiled(ranged_norm.new)(marked)
    assert ranged_norm.known.calls - before == (most == 300)


@torch.no_grad()
@pytest.mark.slow
def test_several_programs_of_a_range_are_one_operator() -> None:
    made = SizedModel("return torch.softmax(x, -1)", "x=float32[4, seq:2..700]")
    parts = [
        replace(part, plan=Plan(part.plan.recipes, {"k0": replace(how, width=256 if n else 512)}))
        for n, part in enumerate(made.parts)
        for how in part.plan.schedules.values()
    ]
    module = importable(run_source(join(parts, "cpp").source))
    assert module.ModelNew._dvk_choice
    call = compiled(module.ModelNew().eval(), dynamic=True)
    for size in (5, 11, 300, 690):
        x = torch.randn(4, size)
        assert differences(call(x), torch.softmax(x, -1)) == []
    assert torch.ops._dvk_operators[module._dvk_operator_1.name].calls == 4


@torch.no_grad()
def test_views_are_taken_outside_of_the_operator() -> None:
    made = Seen(VIEWS, torch.randn(4, 8))
    x = torch.randn(4, 8)
    assert made.ran(compiled(made.new), x) == 1
    torch.library.opcheck(made.operator, made.calls[-1])
    got = compiled(made.new)(x)
    assert got["input"].data_ptr() == x[1:].data_ptr()
    assert got["weight"].data_ptr() == made.new.scale.data_ptr()
    assert got["left"].untyped_storage().data_ptr() == got["both"][1].untyped_storage().data_ptr()


@torch.no_grad()
def test_results_of_one_library_call_are_results_of_the_operator() -> None:
    made = Seen(module_text("return torch.relu(x).sort(1)"), torch.randn(4, 8))
    assert made.ran(compiled(made.new), torch.randn(4, 8)) == 1
    torch.library.opcheck(made.operator, made.calls[-1])


@torch.no_grad()
def test_an_einsum_of_several_operands_is_a_result_of_the_operator() -> None:
    source = module_text("return torch.einsum('ij,kj->ik', torch.relu(x) * 2, x)")
    made = Seen(source, torch.randn(4, 8))
    assert made.ran(compiled(made.new), torch.randn(4, 8)) == 1
    torch.library.opcheck(made.operator, made.calls[-1])


@torch.no_grad()
def test_a_program_that_writes_leaves_the_originals_operators_in_the_trace() -> None:
    source = module_text(
        "self.seen.add_(1)\nreturn torch.tanh(x) * self.seen",
        init='self.register_buffer("seen", torch.zeros(8))',
    )
    made, reference, _ = drop_in(source, torch.randn(4, 8))
    new = made.ModelNew().eval()
    x = torch.randn(4, 8)
    with pytest.warns(UserWarning, match="it writes arguments or buffers"):
        got = compiled(new)(x)
    assert differences(got, reference(x)) == [] and differences(new.seen, reference.seen) == []


FOLDED = module_text(
    "return torch.relu(self.norm(self.fc(x))) + 1",
    init="self.fc, self.norm = nn.Linear(64, 64), nn.BatchNorm1d(64)",
)


@torch.no_grad()
def test_derived_weights_follow_writes_and_go_with_the_weights() -> None:
    made = Seen(FOLDED, torch.randn(8, 64))
    assert "dvk_derived" in made.candidate.source
    kept = made.module._dvk_program_1_kept
    call, x = compiled(made.new), torch.randn(8, 64)
    assert made.ran(call, x) == 1 and len(kept) == 1
    (entry,) = kept.values()
    derived = list(entry[2].values())
    assert made.ran(call, x) == 1 and list(next(iter(kept.values()))[2].values())[0] is derived[0]
    for model in (made.new, made.reference):
        model.get_parameter("fc.weight").mul_(2)
    assert made.ran(call, x) == 1 and len(kept) == 1
    del call, entry, derived, model
    torch._dynamo.reset()
    made.calls.clear()
    made.new = nn.Identity()
    gc.collect()
    assert not kept


@torch.no_grad()
def test_copies_of_a_drop_in_share_its_operators() -> None:
    made = Seen(module_text("return torch.tanh(x) * 3 + 1"), torch.randn(4, 8))
    again = importable(run_source(made.candidate.source))
    assert made.ran(compiled(again.ModelNew().eval()), torch.randn(4, 8)) == 1


@torch.no_grad()
def test_operands_of_another_size_are_refused(block: Seen) -> None:
    weights = [p.detach() for p in block.new.parameters()]
    compiled(block.new)(torch.randn(4, 8))
    operands = list(block.calls[-1])
    operands[0] = torch.randn(2, 8)
    with pytest.raises(RuntimeError, match="expected torch.float32.4, 8. inside"):
        block.operator(*operands)
    operands[0] = torch.randn(8, 4).t()  # other strides: copied
    assert differences(block.operator(*operands), block.reference(operands[0])) == []
    assert weights


@torch.no_grad()
def test_a_function_compiles_in_one_graph() -> None:
    source = "import torch\n\n\ndef f(x, y):\n    return (x + y).softmax(1)\n"
    made = importable(drop_in(source, torch.randn(4, 8), torch.randn(4, 8), entry="f")[0])
    args = torch.randn(4, 8), torch.randn(4, 8)
    call = torch.compile(lambda x, y: made.f_new(x, y) * 2, fullgraph=True, backend="aot_eager")
    assert differences(call(*args), made.f(*args) * 2) == []
    assert made._dvk_operator_1.calls == 1


def lines_of(source: str) -> types.ModuleType:
    from dvk.composer.dropin.lines import Line, write
    from dvk.records import Task, TensorSpec

    spec = TensorSpec(name="x", shape=(4, 8), strides=(8, 1), dtype="float32")
    task = Task(
        id="test",
        name="test",
        source=source,
        entry="Model",
        kind="module",
        inputs=(spec,),
        outputs=(spec,),
    )
    return importable(run_source(write(task, Line("compile"))))


@torch.no_grad()
def test_lines_of_pytorch_step_aside_inside_a_compiler() -> None:
    made = lines_of(module_text("return torch.tanh(x) + 1"))
    net = Around(made.ModelNew(), made.ModelNew()).eval()
    x = torch.randn(4, 8)
    got = compiled(net)(x)
    assert differences(got, compiled(net)(x)) == []
    torch.testing.assert_close(got, torch.relu(net.last(torch.tanh(torch.tanh(x) + 2) + 1)))


@pytest.mark.hand
@pytest.mark.slow
@pytest.mark.parametrize("path", files()[::16], ids=lambda path: path.stem)
def test_tasks_pass_opcheck_and_compile_in_one_graph(path: Path) -> None:
    check(path)


@pytest.mark.slow
@torch.no_grad()
def test_aot_inductor_packages_the_operator(block: Seen, tmp_path: Path) -> None:
    x = torch.randn(4, 8)
    program = torch.export.export(block.new, (x,))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "net.pt2"))
    assert block.ran(torch._inductor.aoti_load_package(path), x) == 1
