"""Answers that are written down: read back after a kill, asked for once, waited for no longer than there is time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dvk.backbone import Completion, Conversation, Sampling, TokenUsage, open_backbone
from dvk.backbone.hf import HfBackbone
from dvk.backbone.pause_gate import OutOfTime
from dvk.backbone.recorded import FILE, RecordedBackbone, _told
from dvk.config import Config
from dvk.errors import MachineError, ModelError
from dvk.records import Tokens
from dvk.runs import RunFolder
from tests.backbone.scripts import asking, script

WARM, COLD = Sampling(seed=1), Sampling(seed=2)


class Counting:
    """Answers with the number of the answer, at a price."""

    name, dialect = "counting", "chat"

    def __init__(self) -> None:
        self.usage, self.asked = TokenUsage(cost_usd=0.0), 0

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        said = []
        for _ in conversations:
            self.asked += 1
            tokens = Tokens(prompt=(1, 2), completion=(3,), logprobs=(-0.5,))
            said.append(Completion(text=str(self.asked), tokens=tokens, finish="stop"))
            self.usage.add(2, 1, 0.5, 0.25)
        return said


class Slow(Counting):
    """A hosted one that answers when it is let."""

    hosted = elsewhere = True

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        assert self.let.wait(60)
        return super().generate(conversations, sampling)


def opened(folder: Path) -> RunFolder:
    return RunFolder.open(
        folder, command="optimize", name="m", argv=[], config=Config(), resume=True
    )


def texts(backbone: RecordedBackbone, *said: str, sampling: Sampling = WARM) -> list[str]:
    return [answer.text for answer in backbone.generate(asking(*said), sampling)]


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        first = RecordedBackbone(Counting(), run)
        told = [
            texts(first, "a", "b"),
            texts(first, "a", "b"),
            texts(first, "a"),
            texts(first, "a", "b", sampling=COLD),
        ]
        assert told == [["1", "2"], ["3", "4"], ["5"], ["6", "7"]]
        with (run.path / FILE).open("a") as torn:
            torn.write('{"id": "killed while wri')
        model = Counting()
        again = RecordedBackbone(model, run)
        # Other questions come between, and the order of different ones may differ; equal ones keep theirs.
        assert texts(again, "a", "b", sampling=COLD) == ["6", "7"]
        assert texts(again, "new") == ["1"]
        assert [texts(again, "a", "b"), texts(again, "a", "b"), texts(again, "a")] == told[:3]
        assert model.asked == 1
        assert texts(again, "a", "b") == ["2", "3"], "what is recorded is used up"
        assert len(RecordedBackbone(Counting(), run).calls) == 6


def test_another_model_is_asked_itself(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        texts(RecordedBackbone(Counting(), run), "a")
        other = Counting()
        other.name = "other"
        assert texts(RecordedBackbone(other, run), "a") == ["1"] and other.asked == 1


def test_answers_are_kept_whole(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        said = RecordedBackbone(Counting(), run).generate(asking("a"), WARM)
        again = RecordedBackbone(Counting(), run)
        assert again.generate(asking("a"), WARM) == said and said[0].tokens is not None
        assert (
            again.calls[0].conversations == tuple(asking("a")) and again.calls[0].sampling == WARM
        )


def test_the_bill_is_that_of_the_whole_run(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        first = RecordedBackbone(Counting(), run)
        texts(first, "a", "b")
        again = RecordedBackbone(Counting(), run)
        texts(again, "a", "b")
        texts(again, "c")
        assert (again.usage.prompt_tokens, again.usage.completion_tokens, again.usage.cost_usd) == (
            6,
            3,
            0.75,
        )
        assert again.usage.seconds == sum(call.seconds for call in again.calls)


def test_a_script_goes_on_where_it_was(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        lines = [{"answer": "one"}, {"answer": "two"}, {"answer": "three"}]
        assert texts(RecordedBackbone(script(tmp_path, *lines), run), "a", "b") == ["one", "two"]
        again = RecordedBackbone(script(tmp_path, *lines), run)
        assert texts(again, "a", "b") == ["one", "two"] and texts(again, "c") == ["three"]


def test_no_time_no_question(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        model = Counting()
        backbone = RecordedBackbone(model, run)
        texts(backbone, "a")
        again = RecordedBackbone(model, run)
        again.left = lambda: 0.0
        assert texts(again, "a") == ["1"], "what is recorded costs no time"
        with pytest.raises(OutOfTime):
            texts(again, "b")
        assert model.asked == 1


def test_a_hosted_model_is_waited_for_no_longer_than_there_is_time(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        slow = Slow()
        backbone = RecordedBackbone(slow, run)
        shown: list[int] = []
        backbone.on_ask = shown.append
        backbone.left = lambda: 0.05
        with pytest.raises(OutOfTime):
            texts(backbone, "a", "b")
        assert shown == [2, 0] and backbone.usage.seconds >= 0.05, (
            "what was waited for in vain counts"
        )
        backbone.close()
        slow.let.set()
        backbone.left = lambda: 60.0
        assert texts(backbone, "c") and run.read(FILE) == [], "too late to be recorded"


def test_a_failure_passes_through(tmp_path: Path) -> None:
    class Down(Slow):
        def generate(
            self, conversations: Sequence[Conversation], sampling: Sampling
        ) -> list[Completion]:
            raise MachineError("down", "start it")

    with opened(tmp_path / "run") as run:
        with pytest.raises(ModelError, match="down") as raised:
            texts(RecordedBackbone(Down(), run), "a")
        assert raised.value.hint == "start it"
        assert run.read(FILE) == []


def test_where_a_server_writes() -> None:
    def elsewhere(url: str) -> object:
        return getattr(
            open_backbone("endpoint:m", Config.model_validate({"backbone": {"endpoint_url": url}})),
            "elsewhere",
            None,
        )

    assert elsewhere("https://models.example.org/v1") is True
    assert (
        elsewhere("http://127.0.0.1:8000/v1") is False and elsewhere("http://localhost/v1") is False
    )


def test_a_model_in_this_process_stops_when_time_is_over(
    tmp_path: Path, shared_nano: HfBackbone
) -> None:
    with opened(tmp_path / "run") as run:
        backbone = RecordedBackbone(shared_nano, run)
        looks = iter([1.0, 1.0, 0.0])
        backbone.left = lambda: next(looks)
        try:
            with pytest.raises(OutOfTime):  # asked twice before it writes, then after some tokens
                backbone.generate(asking("k0[grid"), Sampling(temperature=0, max_tokens=200))
        finally:
            shared_nano.pulse = lambda: None
        assert run.read(FILE) == [] and next(looks, None) is None
        assert (
            shared_nano.generate(asking("k0"), Sampling(temperature=0, max_tokens=4))[0].tokens
            is not None
        )


def test_one_that_transformers_runs_stops_too(
    make_hf: Callable[..., HfBackbone], tmp_path: Path
) -> None:
    model = make_hf("gpt2", n_embd=48, n_layer=1, n_head=4, n_positions=128)
    with opened(tmp_path / "run") as run:
        backbone = RecordedBackbone(model, run)
        looks = iter([1.0, 1.0, 1.0, 0.0])
        backbone.left = lambda: next(looks)
        with pytest.raises(OutOfTime):  # asked twice before it writes, then after one token and two
            backbone.generate(asking("k0[grid"), Sampling(temperature=0, max_tokens=50))
        assert run.read(FILE) == [] and model.engine is None


def test_calls_are_known_by_what_runs_of_before_knew_them_by() -> None:
    conversation = Conversation(messages=({"role": "user", "content": "a"},))
    assert _told(conversation) == '{"messages":[{"role":"user","content":"a"}],"tools":[]}'
    assert _told(WARM) == '{"temperature":1.0,"top_p":1.0,"max_tokens":2048,"stop":[],"seed":1}'
    assert _told(conversation.model_copy(update={"begun": (3,)})) != _told(conversation)
    assert _told(WARM.model_copy(update={"alternatives": True})) != _told(WARM)
    assert _told(conversation.model_copy(update={"stream": 0})) != _told(conversation)
    assert _told(conversation.model_copy(update={"choices": ("a",)})) != _told(conversation)
