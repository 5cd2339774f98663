"""Scores of answers, for trainers that are not dvk's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dvk
from dvk import environments
from dvk.api.scoring import task_file
from dvk.environments import shared_scorer, trl, verl
from dvk.environments.episode import Episode
from dvk.errors import DvkError, UsageError
from tests.environments.answers import RIGHT, TASK, WRONG

SETTINGS = {
    "judge.search_s": 0.05,
    "judge.num_seeds": 1,
    "rewards.weights": {"correctness": 1.0, "format": 0.2},
}


@pytest.fixture(scope="module")
def scorer() -> Iterator[dvk.Scorer]:
    with dvk.Scorer(device="cpu", backend="cpp", workers=1, settings=SETTINGS) as scorer:
        yield scorer


@pytest.mark.slow
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


@pytest.fixture
def shared(scorer: dvk.Scorer, monkeypatch: pytest.MonkeyPatch) -> dvk.Scorer:
    """That scorer is what the adapters of this process use."""
    monkeypatch.setattr(environments, "Scorer", lambda **how: scorer)
    monkeypatch.setattr(environments, "_scorers", {})
    return scorer


def test_adapters_speak_the_words_of_their_trainers(shared: dvk.Scorer) -> None:
    said = [RIGHT, [{"role": "assistant", "content": WRONG}]]
    assert trl.kernel_reward(said, task=[TASK, TASK], prompt=["a", "b"]) == [1.0, 0.0]
    found = verl.compute_score("dvk", RIGHT, TASK, extra_info={"index": 0})
    assert isinstance(found, dict) and (found["score"], found["right"]) == (1.0, 1.0)
    assert found["speedup"] > 0
    unread = verl.compute_score("dvk", "I cannot.", TASK)
    assert unread == {"score": -0.2, "right": 0.0, "speedup": 0.0}  # the same keys, or verl fails
    assert verl.compute_score("dvk", WRONG, TASK, details=False) == 0.0
    assert shared_scorer() is shared


def test_an_environment_of_trl_counts_the_best_submission(shared: dvk.Scorer) -> None:
    class Twice(trl.KernelEnvironment):
        turns = 2

    environment = Twice()
    for _ in range(2):
        assert "up to 2 times" in (environment.reset(task=TASK, prompt=[]) or "")
        assert environment.get_reward() == 0.0
        code = RIGHT.partition("```python\n")[2].removesuffix("```\n")
        assert "Correct on" in environment.submit(code) and environment.get_reward() == 1.0
        assert "Wrong result" in environment.submit(WRONG) and environment.get_reward() == 1.0
        assert "are used" in environment.submit(RIGHT)


def test_an_episode_ends_after_its_turns(shared: dvk.Scorer) -> None:
    episode = Episode(TASK, 1)
    assert (episode.reward, episode.best, episode.done) == (0.0, None, False)
    assert episode.answer("no code").malformed and episode.done and episode.reward == -0.2
    assert episode.metrics() == {"right": 0.0, "speedup": 0.0, "turns": 1.0}
    with pytest.raises(UsageError, match="had its 1 turns"):
        episode.answer(RIGHT)
    with pytest.raises(UsageError):
        Episode(TASK, 0)


def test_rows_for_trl_name_their_split(tmp_path: Path) -> None:
    (tmp_path / "heldout").mkdir()
    (tmp_path / "heldout" / "relu.py").write_text(TASK)
    (row,) = trl.rows(str(tmp_path), "heldout", device="cpu")
    assert row["split"] == "heldout" and row["task"] == TASK and row["prompt"][0]["role"] == "user"
    assert list(trl.rows(str(tmp_path), "train", device="cpu")) == []


def test_threads_that_write_one_task_read_it_whole() -> None:
    with ThreadPoolExecutor(8) as threads:
        for number in range(20):
            text = f"{TASK}# {number}\n" * 50
            files = threads.map(lambda _, text=text: task_file(text).read_text(), range(8))
            assert set(files) == {text}
    assert task_file("a.py") == Path("a.py")
