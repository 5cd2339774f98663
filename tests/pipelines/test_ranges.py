"""`--dynamic`: one program for a range of sizes, checked at sampled sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk.cli.optimize import lines
from dvk.composer import Part, Plan, fuse
from dvk.composer.capture.export import trace
from dvk.composer.codegen.base import codegen
from dvk.config import Config
from dvk.errors import DvkError, TaskError, UsageError
from dvk.pipelines.optimize import check, optimize, ranges
from dvk.pipelines.optimize.request import OptimizeRequest
from dvk.pipelines.verify import VerifyRequest, jobs_of
from dvk.pipelines.verify.jobs import at_sizes
from dvk.records import Task

MODEL = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return {body}


def get_inputs():
    return [torch.rand(8, 16), torch.rand(8)]
"""
SPECS = ("x=float32[batch:1..64, 16]", "y=float32[batch]")


def request(folder: Path, body: str, *dynamic: str, **more: object) -> OptimizeRequest:
    path = folder / "model.py"
    path.write_text(MODEL.format(body=body))
    out = folder / "run"
    return OptimizeRequest(spec=str(path), dynamic=dynamic, device="cpu", out=out, **more)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_points_plan_serves_the_stretch_around_it(tmp_path: Path) -> None:
    asked = request(tmp_path, "torch.tanh(x) * y[:, None]", *SPECS)
    found = ranges.load(asked, Config(), "cpu", "cpp")
    assert [t.inputs[0].shape[0] for t in found.tasks] == [p["batch"] for p in found.points]
    assert all(spec.endswith(":like") for t in found.tasks for spec in t.input_specs)
    task = found.tasks[1]
    captured = trace(task)
    plan = Plan(("fuse_pointwise",))
    (part,) = found.parts(1, Part(task, captured, fuse(task, captured, plan.recipes), plan))
    (_, lo, hi) = part.within[0]
    judged: Task = found.judged(1, [part])
    sizes = {variant.changes[0][2] for variant in judged.shape_variants}
    assert {lo, lo + 1, hi - 1, hi} <= sizes
    assert all({name for name, _, _ in v.changes} == {"x", "y"} for v in judged.shape_variants)
    summary = found.summary([None] * len(found.points))
    assert summary["dims"] == {"batch": [1, 64]} and summary["served"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "specs", "told"),
    [
        ("x * y[:, None] if x.shape[0] > 20 else x + 1", SPECS, "forward depends on the size"),
        ("x * y[:, None]", ("x=float32[batch:1..64, 16]", "z=float32[batch]"), "z"),
        ("x[:7] * y[:7, None] + x[:7].view(7, -1)", SPECS, "batch="),
    ],
)
def test_a_range_that_forward_does_not_bear_is_one_message(
    tmp_path: Path, body: str, specs: tuple[str, ...], told: str
) -> None:
    with pytest.raises(TaskError, match=told):
        optimize(request(tmp_path, body, *specs), Config())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("dynamic", "told"),
    [("x=float32[batch:5..1, 16]", "no range"), ("x=float32[batch:1..9", "cannot read")],
)
def test_what_is_no_range_leaves_nothing(tmp_path: Path, dynamic: str, told: str) -> None:
    with pytest.raises(DvkError, match=told):
        optimize(request(tmp_path, "x", dynamic), Config())
    assert not (tmp_path / "run").exists()


def test_choices_that_do_not_go_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for more in ({"also": ("x=float32[3,16]",)}, {"backbone": "nano"}, {"train": True}):
        with pytest.raises(UsageError):
            check(request(tmp_path, "x", *SPECS, **more))
    monkeypatch.setattr(type(codegen("cuda")), "takes_sizes", False)  # as a back end of a user's
    with pytest.raises(UsageError, match="no sizes as arguments"):
        ranges.load(request(tmp_path, "x", *SPECS), Config(), "cpu", "cuda")


def test_verify_judges_each_candidate_at_sampled_sizes(tmp_path: Path) -> None:
    spec = request(tmp_path, "x * y[:, None]").spec
    jobs = jobs_of(spec, [Path(spec)])
    asked = at_sizes(VerifyRequest(jobs=jobs, name="m", dynamic=SPECS))
    sizes = [dict(job.sizes)["batch"] for job in asked.jobs]
    assert {1, 2, 63, 64} <= set(sizes) and len(sizes) == len(set(sizes))
    job = asked.jobs[sizes.index(63)]
    assert job.specs(asked) == ("x=float32[63,16]:like", "y=float32[63]:like")
    assert job.label.endswith("(batch=63)")
    with pytest.raises(TaskError, match="outside of"):
        at_sizes(VerifyRequest(jobs=jobs, name="m", dynamic=SPECS, inputs=("x=float32[65,16]",)))


def test_the_range_is_told() -> None:
    row = {
        "inputs": "x float32[4, 16]",
        "status": "faster",
        "baselines": {},
        "same_kernels_as": None,
        "reason": None,
    }
    summary = {
        "status": "faster",
        "run": "r",
        "baselines": {"eager": {"speedup": 2.0, "lo": 1.9, "hi": 2.1}},
        "title": "t",
        "skills": [],
        "shapes": [row, row],
        "reason": None,
        "best": "best.py",
        "portfolio": [],
        "dynamic": {
            "dims": {"batch": [1, 64]},
            "served": [[["batch", 1, 8]]],
            "whole": False,
            "checked": [{"batch": 1}, {"batch": 7}],
        },
    }
    told = "\n".join(lines(summary))
    assert (
        "one program for batch 1..64 (the original runs outside of batch 1..8), checked at batch=1; batch=7"
        in told
    )
