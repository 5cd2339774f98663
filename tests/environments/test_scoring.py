"""Scores of answers, for trainers that are not dvk's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dvk
from dvk import environments
from dvk.environments import shared_scorer, trl, verl
from dvk.errors import DvkError, UsageError

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
RIGHT = """I fuse it.
```python
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=0) * 2 + 1
```
"""
WRONG = RIGHT.replace("* 2", "* 3")
SETTINGS = {
    "judge.search_s": 0.05,
    "judge.num_seeds": 1,
    "rewards.weights": {"correctness": 1.0, "format": 0.2},
}


@pytest.fixture(scope="module")
def scorer() -> Iterator[dvk.Scorer]:
    with dvk.Scorer(device="cpu", backend="cpp", workers=1, settings=SETTINGS) as scorer:
        yield scorer


def test_answers_are_scored_side_by_side_in_their_order(scorer: dvk.Scorer, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK)
    answers = [(TASK, RIGHT), (tmp_path / "task.py", WRONG), (TASK, "I cannot."), (TASK, RIGHT)]
    right, wrong, silent, again = scorer.score_all(answers)
    assert right.reward == again.reward == 1.0 and right.terms["correctness"] == 1.0
    assert wrong.reward == 0.0 and "Wrong result" in wrong.feedback and wrong.malformed is None
    assert silent.reward == -0.2 and silent.verdict is None and silent.malformed is not None
    assert right.verdict is not None and "Correct on" in right.feedback


def test_what_cannot_be_scored_is_refused(scorer: dvk.Scorer, tmp_path: Path) -> None:
    with pytest.raises(DvkError):
        scorer.score(tmp_path / "gone.py", RIGHT)
    with pytest.raises(UsageError, match="unknown device"):
        dvk.Scorer(device="tpu")  # type: ignore[arg-type]


def test_adapters_speak_the_words_of_their_trainers(
    scorer: dvk.Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "Scorer", lambda **how: scorer)
    monkeypatch.setattr(environments, "_scorers", {})
    said = [RIGHT, [{"role": "assistant", "content": WRONG}]]
    assert trl.kernel_reward(said, task=[TASK, TASK], prompt=["a", "b"]) == [1.0, 0.0]
    found = verl.compute_score("dvk", RIGHT, TASK, extra_info={"index": 0})
    assert found == {"score": 1.0, "right": 1.0, "correctness": 1.0, "format": 0.0}
    assert shared_scorer() is scorer
