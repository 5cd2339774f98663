"""The tasks of `data/tasks/train`: a third held out, healthy to the judge with their gradients."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dvk.harness.checking.case_keys import plan
from dvk.harness.checking.cases import Cases
from dvk.tasks import load
from dvk.tasks.build import build
from tests.tasks.shrink import TASKS, shrunken, thirds

FILES = sorted((TASKS / "train").glob("*/*.py"))


def test_a_third_is_held_out() -> None:
    assert Counter(path.parent.name for path in FILES) == {"development": 16, "heldout": 8}


def test_each_names_sizes_for_a_cpu() -> None:
    assert [path.stem for path in FILES if "  # cpu: " not in path.read_text()] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", thirds(FILES), ids=lambda path: path.stem)
def test_the_judge_finds_it_healthy(tmp_path: Path, path: Path) -> None:
    """No made-up answer is accepted, and other shapes are available."""
    task = load(str(shrunken(path, tmp_path)), train=True)
    assert task.stochastic == ("dropout" in path.stem)
    keys = plan(task, "claim", 1, 11, backward=True)
    found = Cases(build(task), keys, 11).findings
    assert found == (), found
