"""The estimate of a judgement's memory against what the referee's stages hold, counted operator by operator."""

from __future__ import annotations

import pytest
import torch

from dvk.harness.checking import case_keys
from dvk.harness.session import memory_estimate
from dvk.harness.timing import paired_timer
from dvk.harness.transport import memory_budget
from dvk.records import ShapeVariant, Task, TensorSpec
from dvk.tasks.build import build
from dvk.tasks.peak_memory import LiveBytes, peak_bytes
from dvk.tasks.sizes import input_bytes, num_bytes
from tests.benchmarks.verdict_stages import FILE, run
from tests.harness.problems import task_of

BODIES = {
    "row variance": ("x.float().var(dim=1, correction=0)", "x", "1024, 2048", "float16"),
    "pointwise": ("torch.nn.functional.silu(x) * y", "x, y", "640, 1024", "float32"),
    "softmax": ("torch.softmax(x, -1)", "x", "512, 1024", "float32"),
    "product": ("torch.relu(x @ y)", "x, y", "640, 640", "float32"),
    "norm": ("torch.nn.functional.layer_norm(x, x.shape[-1:])", "x", "1024, 2048", "bfloat16"),
}


def made(body: str, arguments: str, shape: str, dtype: str) -> Task:
    count, rows = arguments.count(",") + 1, int(shape.split(",")[0])
    text = FILE.format(
        name="Model", arguments=arguments, body=body, shape=shape, dtype=dtype, count=count
    )
    sizes = {"batch+3": rows + 3, "batch/2+1": rows // 2 + 1, "batch=1": 1}
    variants = [ShapeVariant(name=n, changes=(("x", 0, size),)) for n, size in sizes.items()]
    variants = variants if count == 1 else []  # the others would have to change y, too
    return task_of(text, "half" if dtype != "float32" else "fp32", variants)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.slow
def test_the_estimate_is_what_the_stages_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    examined = made(*BODIES[name])
    # As a GPU's allocator reports it: two sets of inputs and outputs, and a call's intermediate results.
    peak = peak_bytes(examined)
    assert peak is not None
    examined = examined.model_copy(update={"peak_bytes": peak + num_bytes(examined)})
    for kept in (memory_budget.KEEP_BYTES, memory_budget.STOCK_BYTES):
        monkeypatch.setitem(kept, "cpu", 0)  # the estimate counts them apart
    monkeypatch.setitem(case_keys.LARGE_BYTES, "cpu", 1 << 16)
    monkeypatch.setattr(paired_timer, "Flush", lambda *_: None)
    tier = "smoke" if examined.shape_variants else "search"  # all families are native
    stages = {stage.name: stage.most for stage in run(examined, tier, timed_calls=2)}
    stages.pop("needed bytes")  # once, and after the runners' calls
    estimate, most = memory_estimate.referee_bytes(examined), max(stages.values())
    assert 0.6 * estimate <= most <= 1.05 * estimate, max(stages, key=lambda s: stages[s])


def test_a_runner_holds_three_outputs_and_the_results_in_between() -> None:
    examined = made("torch.softmax((x * 2).exp() + 1, -1)", "x", "256, 1024", "float32")
    peak = peak_bytes(examined)
    assert peak is not None
    examined = examined.model_copy(update={"peak_bytes": peak + num_bytes(examined)})
    built, live = build(examined), LiveBytes()
    args, kwargs = built.inputs(0)
    with torch.no_grad(), live:
        held = [built.model(*args, **kwargs) for _ in range(memory_estimate.OUTPUTS_HELD - 1)]
        held.append(built.model(*args, **kwargs))
    assert 0.8 * live.most <= memory_estimate.runner_bytes(examined) <= 1.3 * live.most


def test_other_shapes_that_are_lent_count() -> None:
    spec = TensorSpec(name="x", dtype="float32", shape=(1024, 1024, 1024), strides=(1, 1, 1))
    plain = Task(
        id="a", name="a", source="", entry="f", kind="function", device="cuda", inputs=(spec,)
    )
    smaller, larger = (
        ShapeVariant(name=name, changes=(("x", 0, size),))
        for name, size in (("batch=1", 1), ("batch*2+1", 2049))
    )
    assert input_bytes(plain, larger) == 2049 * input_bytes(plain) // 1024
    one, both = (
        plain.model_copy(update={"shape_variants": v}) for v in ((smaller,), (smaller, larger))
    )
    more = memory_estimate.bytes_to_judge(both) - memory_estimate.bytes_to_judge(one)
    assert more == input_bytes(plain, larger)
