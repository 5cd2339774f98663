"""Capturing many modules: the graphs of `capture`, in order, at full size without memory, whatever dies on the way."""

from __future__ import annotations

import pytest

from dvk.composer import CannotCompose, CapturedGraph, Plan, compose
from dvk.composer.capture.batch import capture_many, needs_real_kernels, trace_fake, trace_quickly
from dvk.composer.capture.export import trace
from dvk.config import Limits
from dvk.taskgen import generate, signature_of
from dvk.tasks.hygiene import shrunk
from tests.composer.batch_models import attention, task
from tests.tasks.hygiene_tasks import task as written
from tests.tasks.shrink import shipped

LIMITS = Limits(wall_s=90.0)
FUSED = ("fuse_pointwise", "fuse_epilogue", "fuse_rowwise")


@pytest.mark.slow
def test_equal_to_capture() -> None:
    """Graph, strides, constants and hash: the whole result of `capture` (`trace` is what its child runs)."""
    tasks = [task(shrunk(path.read_text()), path.stem) for path in shipped()[::4]]
    tasks += [
        made.task().model_copy(update={"source": shrunk(made.source)})
        for made in generate(5, 12, device="cuda")
    ]
    many = dict(capture_many(tasks, LIMITS, num_workers=2, per_child=15))
    assert list(many) == list(range(len(tasks)))
    for index, one in enumerate(tasks):
        slow, quick = trace(one), many[index]
        assert isinstance(quick, CapturedGraph)
        assert quick.graph.listing() == slow.graph.listing()
        # Only the slow way knows where autocast has no effect.
        assert quick == slow.model_copy(update={"autocast": quick.autocast}), one.source


def test_native_sizes_take_no_memory() -> None:
    """Fake tensors are what is exported: sixteen tebibytes come out."""
    source = written(
        "return (self.linear(x) + 1).relu()", "self.linear = nn.Linear(9, ROWS)"
    ).replace("ROWS = 64", "ROWS = 2097152")
    captured = trace_fake(task(source))
    assert captured.graph.nodes[-1].shape == (2097152, 2097152) and not needs_real_kernels(
        captured.graph
    )


def test_tasks_for_a_gpu_need_none() -> None:
    """Relabelled: the devices in the graph, and those in the hash that a drop-in checks."""
    source = written(
        "return self.linear(x) + torch.arange(ROWS, dtype=torch.float32)",
        "self.linear = nn.Linear(9, ROWS)",
    )
    here, there = (
        trace_fake(task(source)),
        trace_fake(task(source).model_copy(update={"device": "cuda"})),
    )
    assert (
        here.graph.listing() == there.graph.listing().replace("cuda", "cpu")
        and "cuda" in there.graph.listing()
    )
    assert here.facts != there.facts
    assert trace(task(source)).model_copy(update={"autocast": ()}) == here


@pytest.mark.gpu
def test_equal_to_capture_on_a_gpu() -> None:
    tasks = [
        made.task("cuda").model_copy(update={"source": shrunk(made.source)})
        for made in generate(6, 40, device="cuda")
    ]
    many = dict(capture_many(tasks, LIMITS, per_child=40))
    for index, one in enumerate(tasks):
        slow = trace(one).model_copy(update={"autocast": many[index].autocast})
        assert many[index] == slow, one.source


ATTENDED = {
    ("float32", 16, ""): (240, 16, 48, 1),
    ("float32", 6, ""): (90, 30, 6, 1),
    ("float64", 16, ""): (240, 80, 16, 1),
    ("bfloat16", 16, ""): (240, 80, 16, 1),
    ("bfloat16", 12, ""): (240, 80, 16, 1),
    ("float16", 264, ""): (3960, 264, 792, 1),
    ("bfloat16", 16, "turned"): (240, 16, 48, 1),
    ("bfloat16", 12, "masked"): (180, 60, 12, 1),
}
"""Type and width of heads, and what is special → strides of attention over 5 tokens of 3 heads on a GPU."""


@pytest.mark.slow
def test_attention_has_the_layout_of_the_target_device() -> None:
    """A GPU's attention has other result layouts, which later operators keep and texts are written for."""
    for case, strides in ATTENDED.items():
        one, width = attention(*case), case[1]
        there, here = trace_fake(one, "cuda").graph.nodes, trace_fake(one, "cpu").graph.nodes
        assert there[-2].strides == strides and here == trace(one).graph.nodes, case
        # No kernel keeps rows with gaps between them.
        assert there[-1].strides == (
            strides if strides[2] in (width, 3 * width) else (15 * width, 5 * width, width, 1)
        ), case


def test_attention_that_must_be_run_has_no_layout_of_another_device() -> None:
    one = task(
        written(
            "return F.max_pool2d(F.scaled_dot_product_attention(x, x, x), 2)",
            inputs="torch.randn(2, 3, 8, 16)",
        )
    )
    assert trace_quickly(one) == trace(one)
    with pytest.raises(CannotCompose, match="another device"):
        trace_quickly(one, "cuda")


@pytest.mark.gpu
def test_attention_has_this_layout_on_a_gpu() -> None:
    for case in ATTENDED:
        there = attention(*case).model_copy(update={"device": "cuda"})
        real = trace(there)
        assert real == trace_quickly(there), case
        # Only the slow way knows where autocast has no effect.
        assert trace_fake(there, "cuda") == real.model_copy(update={"autocast": ()}), case


@pytest.mark.slow
def test_doubtful_layouts_are_looked_at() -> None:
    """Modules for which meta functions are wrong, or fake tensors fail, take the slow path."""
    one_channel = written(
        "return self.conv(x)", "self.conv = nn.Conv2d(1, 4, 3)", "torch.randn(2, 1, ROWS, 9)"
    )
    permuted = written(
        "return self.norm(x.permute(0, 2, 1))",
        "self.norm = nn.BatchNorm1d(9).eval()",
        "torch.randn(2, ROWS, 9)",
    )
    two_types = written(
        "return F.mse_loss(x, y.half())",
        inputs="torch.randn(ROWS, 9), torch.randn(ROWS, 9)",
        parameters="x, y",
    )
    data = written("return x * self.factor", "self.factor = float(torch.rand(3).tolist()[0]) + 1")
    tasks = [task(source) for source in (one_channel, permuted, two_types, data)]
    assert all(needs_real_kernels(trace_fake(one).graph) for one in tasks[:3])
    assert [found for _, found in capture_many(tasks, LIMITS)] == [trace(one) for one in tasks]


@pytest.mark.slow
def test_a_death_costs_one_task() -> None:
    fine = written("return x.tanh()")
    bad = [
        written("os._exit(3)"),
        written("while True: pass"),
        "import os\nos.kill(os.getpid(), 9)\n",
        written("return torch.from_numpy(x.numpy())"),
    ]
    sources = [fine, bad[0], fine, bad[1], bad[2], fine, bad[3], fine]
    found = [
        captured
        for _, captured in capture_many(
            (task(s) for s in sources), Limits(wall_s=12.0), per_child=8
        )
    ]
    assert [isinstance(f, CapturedGraph) for f in found] == [s == fine for s in sources]
    reasons = [str(f) for f in found if isinstance(f, CannotCompose)]
    assert (
        "exit 3" in reasons[0]
        and "timeout" in reasons[1]
        and "SIGKILL" in reasons[2]
        and "numpy" in reasons[3]
    )


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_generated_tasks_are_captured_and_composed(device: str) -> None:
    """98 % at least, under the signature that the generator says."""
    made = list(generate(23, 250, split="any", device=device))
    found = [captured for _, captured in capture_many([g.task() for g in made], LIMITS)]
    good = 0
    for one, captured in zip(made, found, strict=True):
        if isinstance(captured, CapturedGraph):
            assert signature_of(captured.graph.signature()) == one.signature, one.source
            compose(one.task(), captured, Plan(FUSED), "triton" if device == "cuda" else "cpp")
            good += 1
    assert good >= 0.98 * len(made)
