"""The shipped model: small, with a card of its measurements; offline it writes kernels that the judge finds right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dvk.agents import TaskContext, dialects, policy
from dvk.agents.preparing import prepare
from dvk.backbone import Sampling, open_backbone
from dvk.config import Config
from dvk.harness import JudgeQueue, JudgeSpec
from dvk.records import Candidate, Status, Task
from dvk.resources import resource

FOLDER = resource("data", "nano")
HELD_OUT = resource("data", "tasks", "heldout")


def test_it_is_small_and_its_card_tells_what_it_can_do() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert sum(sizes.values()) <= 40_000_000
    assert all(size < 16 << 20 for name, size in sizes.items() if name.endswith(".safetensors"))
    provenance = json.loads((FOLDER / "dvk.json").read_text())["provenance"]
    assert provenance["stages"]["collect"]["gate_executed"] >= 2000 and {
        "seed",
        "step",
        "stages",
        "last",
    } <= set(provenance)
    measured = provenance["measured"]
    of_its_kind = [
        found for found in measured.values() if found["num_tasks"] >= 100
    ]  # the suite of other kinds has fewer
    assert of_its_kind and all(found["fast_p"]["0"] > 0.8 for found in of_its_kind)
    card = (FOLDER / "README.md").read_text()
    selects_none = any("(none, for any task)" in title for title in measured)
    assert selects_none == ("chooses no skill for any task" in " ".join(card.split()))
    assert "## What it is worth" in card and "## Limits" in card


def answered(*names: str) -> list[tuple[Task, Candidate | str]]:
    """The greedy C++ answer to tasks it was not trained on, or why it cannot be read."""
    dialect, config = dialects.get("compact"), Config()
    subjects = [
        s
        for s in prepare([Path(HELD_OUT) / f"{name}.py" for name in names], "cpu", "cpp", config)
        if isinstance(s, TaskContext)
    ]
    backbone = open_backbone("nano", device="cpu")
    asked = [dialect.policy(subject, (), config.agents) for subject in subjects]
    said = backbone.generate(asked, Sampling(max_tokens=512, temperature=0.0))
    return [
        (subject.task, policy.read(dialect, subject, answer, "nano", [], ""))
        for subject, answer in zip(subjects, said, strict=True)
    ]


@pytest.mark.slow
def test_its_answers_can_be_read() -> None:
    ((_, found),) = answered("network_gate_5cdfb2")
    assert isinstance(found, Candidate) and 'extern "C"' in found.source


@pytest.mark.slow
def test_its_kernels_are_right() -> None:
    names = (
        "fusion_scale_shift_maximum_1ede09",
        "network_gate_5cdfb2",
        "fusion_clamp_mul_add_c1cbc2",
        "fusion_mean_silu_mul_41ec67",
    )
    found = answered(*names)
    jobs = [(task, candidate) for task, candidate in found if isinstance(candidate, Candidate)]
    assert len(jobs) == 4, found
    verdicts = [
        verdict for _, verdict in JudgeQueue[int](1, Config()).map(jobs, JudgeSpec(tier="smoke"))
    ]
    assert [verdict.status for verdict in verdicts] == [Status.OK] * 4, [
        verdict.error for verdict in verdicts
    ]
