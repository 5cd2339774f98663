"""Models that write on a Ray cluster: the files sent, the assignment of questions, and a node killed in mid-run, which changes nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dvk.agents import dialects, policy, writers
from dvk.agents.writers import RayBackbone, widened, with_rollout_place
from dvk.agents.writers import writers as driving
from dvk.agents.writers.writer import GeneratedAnswers, ModelActor, OpenedModel
from dvk.agents.writers.writers import partition
from dvk.backbone import (
    Backbone,
    Completion,
    Conversation,
    Sampling,
    Trainable,
    nano,
    open_backbone,
)
from dvk.backbone.packing import files
from dvk.cluster import connection as cluster
from dvk.config import Config, changed
from dvk.errors import DvkError, MachineError, UsageError
from dvk.harness.remote.ray import MODEL_SHARE, want_of
from dvk.pipelines.eval import EvalRequest, evaluate
from dvk.pipelines.eval.request import EPISODES
from dvk.records import Candidate, Episode
from tests import clusters
from tests.pipelines import world
from tests.pipelines.golden_runs import differences

SPEC = f"nano:{world.MODEL}"
ASKED = [
    Conversation(messages=({"role": "user", "content": f"x{number % 4} = relu(y)\n"},))
    for number in range(10)
]
GREEDY, DRAWN = (
    Sampling(temperature=temperature, max_tokens=24, seed=7) for temperature in (0.0, 1.0)
)


def texts(answers: Any) -> list[str]:
    return [answer.text for answer in answers]


# ---------------------------------------------------------------- without a cluster


def test_who_writes_there() -> None:
    there = Config.model_validate({"remote": {"engine": "ray"}})
    for spec in ("nano", SPEC, "hf:Qwen/Qwen3-8B", "davinci:here"):
        assert with_rollout_place(spec, there).remote.rollouts
        assert not with_rollout_place(spec, Config()).remote.rollouts
        assert not with_rollout_place(
            spec, changed(there, {"remote.rollouts": False})
        ).remote.rollouts
        assert not with_rollout_place(spec, there, num_processes=2).remote.rollouts
    for spec in ("endpoint:m", "scripted", "composer", "file.py:Mine", "episodes:of.jsonl"):
        assert not with_rollout_place(
            spec, changed(there, {"remote.rollouts": True})
        ).remote.rollouts


def test_without_a_cluster_the_driver_writes() -> None:
    here = open_backbone("scripted")
    with writers.opened("scripted", Config(), "cpu", here) as backbone:
        assert backbone is here and widened(Config(), backbone) == Config()


def test_a_model_and_the_judges_fill_a_gpu() -> None:
    for judges in (1, 2, 3, 7, 10):
        share = want_of(
            "cuda", changed(Config(), {"rollout.judges": judges, "remote.rollouts": True})
        ).share
        assert (
            MODEL_SHARE > 0.5
            and MODEL_SHARE + judges * share <= 1.0 + 1e-9 < MODEL_SHARE + (judges + 1) * share
        )


def test_equal_questions_stay_together() -> None:
    found = partition(ASKED, 3)
    assert sorted(position for part in found for position in part) == list(range(10))
    assert (
        len(found) == 3
        and max(map(len, found)) <= 5
        and all(part == sorted(part) for part in found)
    )
    where = {position: number for number, part in enumerate(found) for position in part}
    assert all(where[position] == where[position % 4] for position in range(10))
    assert partition(ASKED[:1], 3) == [[0]] and partition([], 3) == []


def sent(spec: str, config: Config) -> tuple[ModelActor, OpenedModel | DvkError]:
    """A writer that a model was sent to, as an actor's driver does, in small pieces."""
    writer = ModelActor()
    for name, path in files(spec):
        data = path.read_bytes()
        for at in range(0, len(data), 50_000):
            writer.take(name, data[at : at + 50_000])
    return writer, writer.open(spec, config, "cpu")


def test_a_model_arrives_whole_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    writer, told = sent(SPEC, world.CONFIG)
    assert (
        isinstance(told, OpenedModel)
        and told.dialect == "compact"
        and list(tmp_path.iterdir()) == []
    )
    here = open_backbone(SPEC, world.CONFIG, device="cpu")
    for sampling in (GREEDY, DRAWN):
        before, written = here.usage.completion_tokens, writer.write(ASKED, sampling)
        assert isinstance(written, GeneratedAnswers) and written.answers == here.generate(
            ASKED, sampling
        )
        assert written.completion_tokens == here.usage.completion_tokens - before > 0


def test_candidates_are_read_where_they_are_written(tmp_path: Path) -> None:
    subjects, dialect = world.subjects(world.problems(tmp_path)), dialects.get("compact")
    questions = [
        policy.build_prompt(dialect, subject, (), (), world.CONFIG.agents) for subject in subjects
    ]
    writer, _ = sent(SPEC, world.CONFIG)
    written = writer.write(questions, GREEDY.model_copy(update={"max_tokens": 200}), subjects)
    assert isinstance(written, GeneratedAnswers)
    for subject, other, answer in zip(subjects, reversed(subjects), written.answers, strict=True):
        assert isinstance(answer, policy.Reply) and isinstance(answer.found, Candidate)
        plain = Completion(text=answer.text, tokens=answer.tokens, finish=answer.finish)
        for task in (subject, other):  # which cannot have been meant
            assert policy.read(dialect, task, answer, "p", (), "t") == policy.read(
                dialect, task, plain, "p", (), "t"
            )
        assert policy.read(dialect, other, answer, "p", (), "t") != policy.read(
            dialect, subject, answer, "p", (), "t"
        )
    too_long = Conversation(messages=({"role": "user", "content": "x = relu(y)\n" * 2000},))
    failed = writer.write([too_long], GREEDY, subjects[:1])
    assert isinstance(failed, GeneratedAnswers) and failed.answers[0].finish == "error"


def test_adapters_take_their_model_with_them(tmp_path: Path) -> None:
    base = nano.make(
        tmp_path / "base",
        [c.messages[0]["content"] for c in ASKED],
        size="tiny",
        vocabulary=300,
        positions=128,
        seed=0,
    )
    tuned = open_backbone(f"hf:{base}", changed(Config(), {"backbone.lora_rank": 2}), device="cpu")
    assert isinstance(tuned, Trainable)
    with torch.no_grad():
        for number, parameter in enumerate(tuned.parameters()):
            parameter.copy_(
                0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
            )
    tuned.save(tmp_path / "tuned")
    (tmp_path / "tuned" / "learner.pt").write_bytes(b"the optimizer's")
    assert not [name for name, _ in files(f"hf:{tmp_path / 'tuned'}") if name.endswith(".pt")]
    writer, told = sent(f"hf:{tmp_path / 'tuned'}", Config())
    assert isinstance(told, OpenedModel), told
    written = writer.write(ASKED, DRAWN)
    assert isinstance(written, GeneratedAnswers) and texts(written.answers) == texts(
        tuned.generate(ASKED, DRAWN)
    )
    assert texts(written.answers) != texts(
        open_backbone(f"hf:{base}", device="cpu").generate(ASKED, DRAWN)
    )


def test_a_model_that_is_not_there_is_missed_by_the_driver() -> None:
    with pytest.raises(UsageError, match="no model folder"):
        list(files("hf:/nowhere/at/all"))


def test_what_a_node_cannot_open_comes_back_as_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    writer = ModelActor()
    (tmp_path / "full").write_text("")
    writer._folder = tmp_path / "full"  # a file: nothing can be written under it
    writer.take("0/config.json", b"{}")
    told = writer.open(SPEC, Config(), "cpu")
    assert isinstance(told, MachineError) and "TMPDIR" in str(told.hint)


@dataclass(eq=False)
class Question:
    """Questions to an actor of `Dying`."""

    node: str
    what: str
    given: tuple[Any, ...]


class Dying:
    """A cluster whose actors on node a die at a given question; those of node b live."""

    def __init__(self, patch: pytest.MonkeyPatch, at: str, places: dict[str, int]):
        ray = pytest.importorskip("ray", reason="there is no Ray for this Python")
        self.begun, self.killed, self.at, self.exceptions = [], [], at, ray.exceptions
        self.is_initialized, self.put, self.kill = (
            lambda: True,
            lambda piece: piece,
            self.killed.append,
        )
        self.remote = lambda made: SimpleNamespace(
            options=lambda scheduling_strategy, **_: SimpleNamespace(
                remote=lambda: self._begin(scheduling_strategy.node_id[0])
            )
        )
        known = SimpleNamespace(
            ray=self,
            engine="ray",
            actors=[],
            room=lambda *_: sum(places.values()),
            places=lambda *_: {name * 56: count for name, count in places.items()},
        )
        patch.setattr(driving, "connect", lambda engine: known)

    def _begin(self, node: str) -> Any:
        asks = {
            name: SimpleNamespace(remote=lambda *given, name=name: Question(node, name, given))
            for name in ("take", "open", "write")
        }
        self.begun.append(actor := SimpleNamespace(**asks))
        return actor

    def wait(self, asked: list[Question], timeout: float) -> tuple[list[Question], list[Question]]:
        return ([one for one in asked if one.what == "open"] or asked)[:1], []

    def get(self, asked: Question) -> OpenedModel | GeneratedAnswers:
        if asked.node == "a" and asked.what == self.at:
            raise self.exceptions.ActorDiedError
        if asked.what == "open":
            return OpenedModel(asked.node, "compact")
        return GeneratedAnswers(
            [Completion(text=asked.node, finish="stop")] * len(asked.given[0]), 1, 1, 0.0
        )


@pytest.mark.parametrize(
    ("at", "problem"),
    [("open", "no model can be opened"), ("write", "while they wrote the same answers")],
)
def test_actors_that_die_again_and_again_are_given_up(
    at: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Dying(monkeypatch, at, {"a": 2})
    with pytest.raises(MachineError, match=problem):
        RayBackbone(SPEC, Config.model_validate({"remote": {"engine": "ray"}}), "cpu").generate(
            ASKED, GREEDY
        )
    assert (
        all(actor in cluster.killed for actor in cluster.begun)
        and len(cluster.begun) >= 2 * driving.ATTEMPTS - 1
    )


def test_idle_actors_of_a_node_that_was_lost_are_given_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Dying(monkeypatch, "write", {"a": 2 * driving.ATTEMPTS, "b": 1})
    writers = RayBackbone(SPEC, Config.model_validate({"remote": {"engine": "ray"}}), "cpu")
    while not all(hand.node for hand in writers._hands):
        writers._go_on()
    assert texts(writers.generate(ASKED[:1], GREEDY)) == ["b"] and writers.num_lost == 1


# ---------------------------------------------------------------- a cluster of two nodes, one CPU each


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """The cluster; the driver's machine, its head, neither judges nor writes."""
    with clusters.of_nodes(2) as made:
        yield made


class Slow(ModelActor):
    """Takes long enough to be killed meanwhile."""

    def write(self, *given: Any, **named: Any) -> GeneratedAnswers | DvkError:
        time.sleep(0.4)
        return super().write(*given, **named)


class Loss:
    """Kills a node that writes, the driver's own excepted, once it was looked so often; counts actors lost."""

    def __init__(self, nodes: Any, patch: pytest.MonkeyPatch, after: int):
        self.victim, self.seen, self.rounds = None, [], 0
        going = RayBackbone._go_on

        def loses(this: RayBackbone) -> None:
            self.seen = [*self.seen, this] if this not in self.seen else self.seen
            mine = this._cluster.ray.get_runtime_context().get_node_id()
            writing = [
                hand.place[0]
                for hand in this._hands
                if hand.part is not None and hand.place[0] != mine
            ]
            self.rounds += bool(writing)
            if self.victim is None and writing and self.rounds > after:
                self.victim = next(
                    node for node in nodes.worker_nodes if node.node_id == writing[0]
                )
                clusters.kill(clusters.raylet(self.victim))
            going(this)

        patch.setattr(driving, "ModelActor", Slow)
        patch.setattr(RayBackbone, "_go_on", loses)

    @property
    def num_lost(self) -> int:
        return sum(one.num_lost for one in self.seen)


@pytest.mark.slow
def test_it_says_the_same_there_and_learns(nodes: Any) -> None:
    config = with_rollout_place(SPEC, changed(world.CONFIG, {"remote.engine": nodes.address}))
    here = open_backbone(SPEC, config, device="cpu")
    assert isinstance(here, Trainable)
    with writers.opened(SPEC, config, "cpu") as there:
        assert (
            isinstance(there, Backbone)
            and isinstance(there, RayBackbone)
            and there.dialect == "compact"
            and there.name == here.name
        )
        assert widened(config, there).rollout.batch == 2 * config.rollout.batch
        for sampling in (GREEDY, DRAWN):
            assert texts(there.generate(ASKED, sampling)) == texts(here.generate(ASKED, sampling))
        assert (
            there.usage.completion_tokens == here.usage.completion_tokens
            and there.usage.seconds > 0
        )
        before = texts(here.generate(ASKED, DRAWN))
        with torch.no_grad():
            for parameter in here.parameters():
                parameter.mul_(1.2)
        assert texts(there.generate(ASKED, DRAWN)) == before
        writers.renew(there, here)
        assert texts(there.generate(ASKED, DRAWN)) == texts(here.generate(ASKED, DRAWN)) != before
    limit = time.monotonic() + 30
    while (
        any(clusters.actor_under(node, "Writer") for node in nodes.worker_nodes)
        and time.monotonic() < limit
    ):
        time.sleep(0.2)
    assert not any(clusters.actor_under(node, "Writer") for node in nodes.worker_nodes)


@pytest.mark.hand
@pytest.mark.slow
def test_eval_with_a_node_killed_in_mid_run(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = world.problems(tmp_path / "suite")
    for operator in ("sigmoid", "exp"):
        (suite / f"chain_{operator}.py").write_text(
            world.SOURCE.format(operator=operator, factor=2.0, rows=40)
        )
    quick = {
        "rollout.turns": 2,
        "rollout.batch": 2,
        "rollout.policy_tokens": 96,
        "judge.search_s": 0.05,
        "judge.num_seeds": 1,
    }
    config = changed(world.CONFIG, quick)

    def played(name: str, config: Config) -> list[Episode]:
        out = tmp_path / name
        told = evaluate(
            EvalRequest(suite=suite, policy=SPEC, backend="cpp", device="cpu", out=out), config
        )
        assert told["num_tasks"] == 4 and told["cost"]["completion_tokens"] > 0
        return [
            Episode.model_validate_json(line) for line in (out / EPISODES).read_text().splitlines()
        ]

    def said(episodes: list[Episode]) -> dict[str, Any]:
        """The part that does not depend on measurements: first turns, and how many there are."""
        turns = {episode.task.name: episode.traces[0].turns for episode in episodes}
        return {
            name: (len(each), each[0].completion, each[0].verdict and each[0].verdict.status)
            for name, each in turns.items()
        }

    here = played("here", config)
    assert {status for _, _, status in said(here).values()} >= {"ok", "mismatch"}
    loss = Loss(nodes, monkeypatch, after=2)
    there = played("there", changed(config, {"remote.engine": nodes.address}))
    assert loss.victim is not None and loss.num_lost >= 1
    assert Counter(episode.task.name for episode in there) == Counter(
        path.stem for path in suite.glob("*.py")
    )
    assert said(there) == said(here)


@pytest.mark.hand
@pytest.mark.slow
def test_training_with_a_node_killed_comes_to_the_same(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test: a node that joins in its place, and another that dies."""
    nodes.add_node(num_cpus=1, **clusters.SMALL)
    loss = Loss(nodes, monkeypatch, after=6)
    found = json.loads(
        json.dumps(
            world.trajectory(tmp_path, changed(world.CONFIG, {"remote.engine": nodes.address}))
        )
    )
    assert loss.victim is not None and loss.num_lost >= 1
    assert differences(found, json.loads(world.TRAJECTORY.read_text())) == []
    cluster.close()
