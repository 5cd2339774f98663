"""The whole loop on a CPU with a model of a test's size: it plays, learns, keeps, and comes back after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dvk import tasks
from dvk.agents import TaskContext
from dvk.agents.repair import repair_attempts
from dvk.agents.writers import engine_advice
from dvk.backbone import open_backbone
from dvk.backbone.hf import HfBackbone
from dvk.backbone.nano import make
from dvk.cluster import connection
from dvk.config import Config, changed
from dvk.distributed import ProcessGroup
from dvk.errors import DvkError, UsageError
from dvk.learn.learner import rate
from dvk.pipelines.train import TrainRequest, check, train
from dvk.pipelines.train.figures import Guards, episode_figures
from dvk.pipelines.train.state import TrainState, copy_library, newest, reference_policy
from dvk.pipelines.train.task_sampler import TaskSampler
from dvk.records import Episode, Trace, Turn
from dvk.runs import RunFolder
from dvk.skills import Library
from tests.backbone.token_serving import token_serving
from tests.pipelines.pages import Page
from tests.pipelines.trainings import CONFIG, SOURCE, metrics, request


@pytest.fixture(scope="module")
def whole(taught: str, problems: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("train") / "whole"
    train(request(taught, problems, out), CONFIG)
    return out


@pytest.mark.slow
def test_training_generates_updates_and_saves(whole: Path, taught: str) -> None:
    rows = metrics(whole)
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["rate"] == pytest.approx(5e-4) and rows[0]["kl"] < 1e-9, (
        "it rises in two steps, and where it began is no way off"
    )
    assert (
        rows[0]["right"] > 0.5
        and rows[0]["rows"] > 0
        and rows[0]["kept"] > 0.9
        and rows[0]["mismatch"] < 0.01
    )
    episodes = [
        Episode.model_validate_json(line)
        for line in (whole / "episodes" / "step_000000.jsonl").read_text().splitlines()
    ]
    turns = [turn for e in episodes for t in e.traces if t.role == "policy" for turn in t.turns]
    assert len(turns) == 6 and all(
        turn.tokens is not None and turn.reward is not None for turn in turns
    )
    assert any(turn.advantage for turn in turns)
    before, after = open_backbone(taught), open_backbone(f"hf:{newest(whole / 'checkpoints')}")
    pairs = list(zip(before.parameters(), after.parameters(), strict=True))  # type: ignore[attr-defined]  # both have weights
    assert any(not torch.equal(a, b) for a, b in pairs)
    assert [p.name for p in (whole / "checkpoints").iterdir()] == ["step_000002"]
    page = Page((whole / "report.html").read_text())
    assert (1, "2 steps of training") in page.headings and {"reward_turn_1", "save_s"} <= {
        row[0] for row in page.table("Figure")
    }


@pytest.mark.slow
def test_a_server_samples_and_takes_each_step_s_adapter(
    taught: str, problems: Path, tmp_path: Path
) -> None:
    config = changed(CONFIG, {"backbone.lora_rank": 4})
    served = open_backbone(taught, config, device="cpu")
    assert isinstance(served, HfBackbone)
    with token_serving(served, taught.partition(":")[2]) as server:
        config = changed(config, {"served.rollouts": server.url})
        train(request(taught, problems, tmp_path / "run", steps=1), config)
        assert server.now is not None and server.now.endswith("-1"), "the step's own answers"
        assert [name[-2:] for name in server.adapters] == ["-2"], "and its result"
    (row,) = metrics(tmp_path / "run")
    assert row["right"] > 0.5 and row["rows"] > 0 and row["kept"] == 1.0
    assert row["mismatch_token"] < 1e-4 and row["mismatch_ratio"] < 1.001
    assert not (tmp_path / "run" / "rollouts" / "weights").exists()


def test_a_large_model_is_told_of_servers() -> None:
    small = open_backbone("nano", device="cpu")
    assert isinstance(small, HfBackbone) and engine_advice(small, CONFIG) is None
    small.model = torch.nn.Linear(10_000, 6_000, device="meta")
    assert "60 million parameters" in str(engine_advice(small, CONFIG))
    served = changed(CONFIG, {"served.rollouts": "local"})
    assert engine_advice(small, served) is None


def test_rollouts_that_cannot_be_are_refused(problems: Path, tmp_path: Path) -> None:
    config = changed(CONFIG, {"served.rollouts": "http://127.0.0.1:9"})
    with pytest.raises(UsageError, match="not `nano`"):
        train(request("nano", problems, tmp_path / "run"), config)


@pytest.mark.hand
@pytest.mark.slow
def test_a_step_judged_on_a_fresh_cluster(
    taught: str, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="there is no Ray for this Python")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else it leaves a token in the user's folder
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))  # nothing is known from runs before
    try:
        train(
            request(taught, problems, tmp_path / "run", steps=1),
            changed(CONFIG, {"remote.engine": "ray"}),
        )
    finally:
        connection.close()
    (row,) = metrics(tmp_path / "run")
    lines = (tmp_path / "run" / "episodes" / "step_000000.jsonl").read_text().splitlines()
    traces = [trace for line in lines for trace in Episode.model_validate_json(line).traces]
    verdicts = [
        turn.verdict for trace in traces for turn in trace.turns if turn.verdict is not None
    ]
    assert row["right"] > 0.5 and verdicts and not any(verdict.cached for verdict in verdicts)


@pytest.mark.slow
def test_a_killed_run_ends_where_the_uninterrupted_one_does(
    whole: Path, taught: str, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the judge itself; tests of other moments, without it, are next to the golden trajectory."""

    class Killed(BaseException):
        pass

    cut, step = tmp_path / "cut", TaskSampler.step

    def dies(self: TaskSampler, number: int) -> list[TaskContext]:
        if number == 1:
            raise Killed
        return step(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(TaskSampler, "step", dies)
        with pytest.raises(Killed):
            train(request(taught, problems, cut), CONFIG)
    # The first run's verdicts are cached, so equal candidates earn the same in both.
    train(request(taught, problems, cut, resume=True), CONFIG)
    assert metrics(cut) == metrics(whole)
    one, other = (
        torch.load(newest(r / "checkpoints") / "learner.pt", weights_only=True)
        for r in (whole, cut)
    )  # type: ignore[operator]
    assert one["step"] == other["step"] >= 1, (
        "the optimizer's, which a step without anything to learn leaves alone"
    )
    a, b = (open_backbone(f"hf:{newest(r / 'checkpoints')}") for r in (whole, cut))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))  # type: ignore[attr-defined]


# ---------------------------------------------------------------- parts


@pytest.mark.slow
def test_a_step_s_tasks_are_a_function_of_the_seed(problems: Path, tmp_path: Path) -> None:
    draws = [
        TaskSampler(CONFIG, "cpp", "cpu", tmp_path, problems),
        TaskSampler(CONFIG, "cpp", "cpu", tmp_path),
    ]
    draws[1].pool = draws[0].pool  # read once
    names = [[[s.task.name for s in draw.step(step)] for step in range(3)] for draw in draws]
    assert names[0] == names[1] and all(set(step) == {"chain_40", "chain_56"} for step in names[0])
    with pytest.raises(UsageError, match="can be played"):
        TaskSampler(CONFIG, "cpp", "cpu", tmp_path, tmp_path / "nowhere")


def test_a_library_is_copied_whole(tmp_path: Path) -> None:
    with Library.open(tmp_path / "a.db", create=True) as library:
        copy_library(library.path, tmp_path / "b.db")
    with Library.open(tmp_path / "b.db") as copied:
        assert len(copied) == 0
    with pytest.raises(UsageError, match="no skill library"):
        copy_library(tmp_path / "c.db", tmp_path / "d.db")


def test_the_rate_follows_the_size_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = f"nano:{make(tmp_path / 'tiny', ['k0[1, 4]:'], size='tiny', vocabulary=320)}"
    config = changed(CONFIG, {"train.rate": None})
    for name, smallest, expected in (("a", 200_000_000, 0.03 / 96), ("b", 1, 1e-6)):
        monkeypatch.setattr("dvk.pipelines.train.state.SMALL_PARAMETERS", smallest)
        opening = {"command": "train", "name": name, "argv": (), "config": config}
        with (
            RunFolder.open(tmp_path / name, resume=False, **opening) as run,
            TrainState.restore(run, start, None, 2, config) as state,
        ):
            assert state.learner.settings.rate == expected


def test_a_resumed_run_is_held_near_where_it_began(tmp_path: Path) -> None:
    start = f"nano:{make(tmp_path / 'tiny', ['k0[1, 4]:'], size='tiny', vocabulary=320)}"
    config = changed(CONFIG, {"objective.passes": 2, "train.warmup": 3})
    with RunFolder.open(
        tmp_path / "r", command="train", name="t", argv=(), config=config, resume=False
    ) as run:
        with TrainState.restore(run, start, None, 2, config) as state, torch.no_grad():
            next(state.backbone.parameters()).add_(1.0)
            state.write({})
            state.keep({"step": 1}, 100)
        with TrainState.restore(run, start, None, 2, config) as state:
            assert state.step == 1 and state.learner._start is not None
            began = open_backbone(start, device="cpu")
            kept, held, first = (
                next(model.parameters()) for model in (state.backbone, state.learner._start, began)
            )  # type: ignore[attr-defined]
            assert torch.equal(held, first) and torch.equal(kept, first + 1.0)
            rates = [
                rate(update, state.learner.num_steps, state.learner.settings) for update in range(8)
            ]
    assert rates == pytest.approx([1e-3 * min(1.0, number / 6) for number in range(1, 9)]), (
        "three steps of two updates"
    )
    with pytest.raises(UsageError, match="whole copy of the model"):
        reference_policy(
            start, None, changed(config, {"learning.sharding": "fsdp"}), ProcessGroup(size=2)
        )
    with pytest.raises(UsageError, match="which training began with"):
        reference_policy(f"nano:{tmp_path / 'gone'}", None, config, ProcessGroup())


def test_divergence_from_a_reference_policy_is_computed_in_its_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dvk.backbone.loading.FP32_PARAMETERS", 0)  # every model is a large one
    start = f"nano:{make(tmp_path / 'tiny', ['k0[1, 4]:'], size='tiny', vocabulary=320)}"
    assert open_backbone(start, CONFIG, device="cpu").model.dtype is torch.bfloat16  # type: ignore[attr-defined]
    assert reference_policy(start, None, CONFIG, ProcessGroup()).dtype is torch.float32


def test_a_model_without_weights_is_refused(tmp_path: Path) -> None:
    with (
        RunFolder.open(
            tmp_path / "r", command="train", name="t", argv=(), config=CONFIG, resume=False
        ) as run,
        pytest.raises(UsageError, match="cannot be trained"),
    ):
        TrainState.restore(run, "scripted", None, 1, CONFIG)


def test_answers_drawn_again_are_not_learnt_from(tmp_path: Path) -> None:
    config = Config.model_validate({"rollout": {"resample_unparsed": 1}})
    with pytest.raises(UsageError, match="rollout.resample_unparsed"):
        train(TrainRequest(out=tmp_path / "run"), config)
    assert not (tmp_path / "run").exists()


def test_training_plays_the_policy_that_evaluation_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers that do not parse are repaired in both: else a third of the signal is whether they parse."""
    used: list[Config] = []

    def restore(
        run: RunFolder, start: str, library: Any, steps: int, config: Config, *_: Any
    ) -> None:
        used.append(config)
        raise DvkError("enough", "")

    monkeypatch.setattr(TrainState, "restore", restore)
    with pytest.raises(DvkError, match="enough"):
        train(TrainRequest(out=tmp_path / "run"), Config())
    assert repair_attempts(used[0].rollout) == repair_attempts(Config().rollout) > 0


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"rollout.temperature": 0.0}, "one answer"),
        ({"rollout.rollouts": 1, "rollout.schemes": 0}, "no peers"),
        (
            {
                "rollout.rollouts": 1,
                "rollout.schemes": 1,
                "rollout.null_scheme": False,
                "credit.advantage": "grpo",
            },
            "no peers",
        ),
    ],
)
def test_settings_that_teach_nothing_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check(changed(Config(), settings))
    check(
        changed(Config(), {**settings, "rollout.temperature": 1.0, "credit.advantage": "reinforce"})
    )


def test_figures_count_answers(tmp_path: Path) -> None:
    unread = Turn(malformed="x", reward=-0.2)
    task = tasks.load(str(_file(tmp_path)), device="cpu", limits=CONFIG.limits)
    episode = Episode(
        task=task,
        traces=(
            Trace(role="policy", turns=(unread, unread)),
            Trace(role="selection", turns=(Turn(),)),
        ),
    )
    found = episode_figures([episode])
    assert (
        found["unread_policy"] == 1.0 and found["unread_selection"] == 0.0 and found["right"] == 0.0
    )
    assert found["reward_turn_2"] == -0.2 and found["best_speedup"] == 0.0


def test_guards_wait_and_then_say_why() -> None:
    guards = Guards()
    for step, entropy in enumerate((0.01, 0.0004, 0.0004, 0.01, 0.0004, 0.0004)):
        guards.look(step, {"entropy": entropy})
    with pytest.raises(DvkError, match="below 5% of what it was at first for 3 steps"):
        guards.look(6, {"entropy": 0.0004})
    guards = Guards([{"step": 0}, {"entropy": None}, {"entropy": 0.01}, {"entropy": 0.0004}])
    with pytest.raises(DvkError, match="entropy"):
        for step in range(2, 5):
            guards.look(step, {"entropy": 0.0004})
    guards = Guards()
    with pytest.raises(DvkError, match="entropy"):
        for step, entropy in enumerate((float("nan"), 0.01, 0.0004, float("nan"), 0.0004, 0.0004)):
            guards.look(step, {"entropy": entropy})
    guards = Guards()
    with pytest.raises(DvkError, match="cannot be read since step 1"):
        for step in range(1, 9):
            guards.look(step, {"unread_policy": 0.95})


def _file(folder: Path) -> Path:
    path = folder / "one.py"
    path.write_text(SOURCE.format(rows=8, factor=1.0))
    return path
