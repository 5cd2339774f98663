"""Unparsable answers: other prefixes are tried by their probability, up to the place of the error; the first that parses wins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from dvk.agents import TaskContext, dialects, policy
from dvk.agents.episode_runner import EpisodeRunner
from dvk.agents.preparing import prepare
from dvk.agents.reading import MalformedAnswer
from dvk.agents.repair import Prefixes, UnparsedAnswer, parallel_attempts, repair, repaired_answers
from dvk.backbone import Alternative, Completion, Conversation, Sampling, TokenUsage, open_backbone
from dvk.backbone.pause_gate import OutOfTime
from dvk.config import AgentsConfig, Config, changed
from dvk.records import Candidate, Skill, Status, Tokens, Verdict
from dvk.resources import resource
from dvk.search.refine import one_round
from tests.agents.conftest import affine, configured

HERE = TaskContext(affine(), None, "cpp")
QUESTION = Conversation(messages=({"role": "user", "content": "write"},))
HOW = Sampling(temperature=0.0)


class Speller:
    """A model that writes letters: its ending by its given prefix, and the probabilities of other letters.

    Args:
        endings: beginning → whole answer; the longest that fits is meant.
        likely: beginning → letters that might have followed it, with their probability.
    """

    name, dialect = "speller", "compact"

    def __init__(self, endings: Mapping[str, str], likely: Mapping[str, Mapping[str, float]]):
        self.endings, self.likely, self.usage = endings, likely, TokenUsage()
        self.calls: list[list[str]] = []

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        asked = ["".join(map(chr, conversation.begun)) for conversation in conversations]
        self.calls.append(asked)
        return [self.answer(begun, sampling) for begun in asked]

    def answer(self, begun: str, sampling: Sampling) -> Completion:
        text = self.endings[
            max((start for start in self.endings if begun.startswith(start)), key=len)
        ]
        text = begun + text[len(begun) :]
        others = [
            Alternative(position=at, at=at, token=ord(letter), logprob=math.log(share))
            for at in range(len(text))
            for letter, share in self.likely.get(text[:at], {}).items()
            if letter != text[at]
        ]
        tokens = Tokens(prompt=(1,), completion=tuple(map(ord, text)))
        return Completion(
            text=text,
            tokens=tokens,
            finish="stop",
            alternatives=tuple(others) if sampling.alternatives else (),
        )


class Spelling(dialects.get("compact").__class__):  # type: ignore[misc]  # a class by name
    """Answers are right without an x, whose position is the error's place."""

    def policy(
        self, subject: TaskContext, skills: Sequence[Skill], settings: AgentsConfig
    ) -> Conversation:
        return QUESTION

    def read_policy(self, subject: TaskContext, answer: Completion) -> Candidate:
        if "x" in answer.text:
            raise MalformedAnswer("there is an x", answer.text.index("x") + 1)
        return Candidate(source=answer.text, backend="cpp", proposer="")


def search(speller: Speller, most: int, number: int = 1) -> list[tuple[int, str, int]]:
    first = [
        policy.parse_reply(Spelling(), HERE, answer)
        for answer in speller.generate([QUESTION] * number, HOW)
    ]
    return [
        (place, answer.text, dropped)
        for place, answer, dropped in repair(
            speller,
            Spelling(),
            [UnparsedAnswer(HERE, QUESTION, answer) for answer in first],
            most,
            HOW,
        )
    ]


def test_the_likeliest_other_beginning_comes_first_and_what_follows_the_fault_is_left_alone() -> (
    None
):
    speller = Speller(
        {"": "abxd", "b": "bbxd", "c": "cbcd", "ac": "acxx", "abz": "abzd"},
        {"": {"b": 0.2, "c": 0.1}, "a": {"c": 0.3}, "abx": {"z": 0.9}},
    )
    assert search(speller, 9) == [(0, "cbcd", 3)]
    assert speller.calls == [[""], ["abx"], ["ac"], ["b"], ["c"]], (
        "0.3, 0.2, 0.1; what might have followed the x is no help"
    )


def test_a_beginning_of_a_beginning_costs_both() -> None:
    speller = Speller(
        {"": "xx", "a": "axx", "b": "bxx", "ac": "ac"}, {"": {"a": 0.5, "b": 0.3}, "a": {"c": 0.5}}
    )
    assert search(speller, 9) == [(0, "ac", 3)]
    assert speller.calls == [[""], ["x"], ["a"], ["b"], ["ac"]], "0.5, 0.3, 0.5 * 0.5"


def test_an_unrepairable_answer_stays_as_it_was() -> None:
    speller = Speller({"": "xx", "a": "ax"}, {"": {"a": 0.5}})
    assert search(speller, 9) == [(0, "xx", 1)], "nothing is left after one"
    assert search(speller, 0) == [(0, "xx", 0)]
    endless = Speller(
        {"": "x"},
        {
            "": {letter: 0.01 for letter in "abcdefgh"},
            **{letter: {"x": 0.5} for letter in "abcdefgh"},
        },
    )
    endless.endings = {"": "x", **{letter: letter + "x" for letter in "abcdefgh"}}
    assert search(endless, 3) == [(0, "x", 3)] and len(endless.calls) == 5


def test_several_are_asked_in_one_call() -> None:
    speller = Speller({"": "xx", "a": "ax", "b": "bb"}, {"": {"a": 0.5, "b": 0.3}})
    assert search(speller, 9, number=2) == [(0, "bb", 2), (1, "bb", 2)]
    assert speller.calls == [["", ""], ["x", "x"], ["a", "a"], ["b", "b"]]


def test_a_gpu_writes_several_tries_of_each_at_a_time() -> None:
    speller = Speller(
        {"": "xx", "a": "axx", "b": "bb", "c": "cc", "ad": "ad", "e": "ex"},
        {"": {"a": 0.5, "b": 0.3, "c": 0.2, "e": 0.1}, "a": {"d": 0.5}},
    )
    speller.model = SimpleNamespace(device=SimpleNamespace(type="cuda"))  # type: ignore[attr-defined]  # as one with weights has
    assert search(speller, 9) == [(0, "bb", 2)] and speller.calls[2:] == [["a", "b", "c", "e"]], (
        "the likeliest that can be read"
    )
    speller.calls.clear()
    assert search(speller, 1) == [(0, "xx", 1)] and speller.calls[2:] == [["a"]]
    speller.endings = {
        "": "xx",
        "a": "axx",
        "ad": "ad",
        **{letter: letter + "x" for letter in "bce"},
    }
    speller.calls.clear()
    assert search(speller, 9, number=2) == [(0, "ad", 5), (1, "ad", 5)] and speller.calls[2:] == [
        [*"abce"] * 2,
        ["ad"] * 2,
    ]


def test_without_alternatives_or_a_place_there_is_nothing_to_try() -> None:
    left = Prefixes()
    left.add_alternatives(Completion(text="x", finish="stop"))
    answer = Speller({"": "x"}, {"": {"a": 0.5}}).answer(
        "", HOW.model_copy(update={"alternatives": True})
    )
    left.add_alternatives(policy.Reply(**dict(answer), task=HERE.task.id, found="no place"))
    assert left.pop_likeliest() == []
    left.add_alternatives(policy.parse_reply(Spelling(), HERE, answer))
    left.add_alternatives(policy.parse_reply(Spelling(), HERE, answer))
    assert (
        left.pop_likeliest(2) == [((ord("a"),), pytest.approx(math.log(2)))]
        and left.pop_likeliest() == []
    ), "each is given out once"


@pytest.mark.hand
@pytest.mark.slow
def test_most_unparsable_programs_of_nano_are_repaired() -> None:
    """Eight held-out tasks whose first Triton answer, of the nano that was measured, could not be read."""
    names = (
        "fusion_abs_amax_sub_025e31",
        "fusion_leaky_relu_exp2_chunk_a4f773",
        "fusion_masked_fill_layer_norm_slice_92b9b1",
        "fusion_normalize_slice_glu_c106f5",
        "fusion_scale_scale_softmax_e6a703",
        "fusion_softmax_cat_amin_6fc8fd",
        "single_cosine_similarity_6ec1f4",
        "single_cosine_similarity_950804",
    )
    dialect, config, nano = dialects.get("compact"), Config(), open_backbone("nano", device="cpu")
    folder = Path(resource("data", "tasks", "heldout"))
    subjects = [
        one
        for one in prepare([folder / f"{name}.py" for name in names], "cpu", "triton", config)
        if isinstance(one, TaskContext)
    ]
    questions = [dialect.policy(subject, (), config.agents) for subject in subjects]
    how = Sampling(temperature=0.0, max_tokens=1024)
    answers = repaired_answers(
        nano,
        dialect,
        list(zip(subjects, questions, strict=True)),
        nano.generate(questions, how),
        16,
        how,
    )
    assert (
        len(answers) == 8 and sum(not policy.has_no_candidate(answer) for answer, _ in answers) >= 5
    )
    assert all(dropped <= 16 for _, dropped in answers)


def test_an_answer_that_was_read_for_one_task_is_read_for_another() -> None:
    other = TaskContext(affine().model_copy(update={"id": "another"}), None, "cpp")
    answer = policy.parse_reply(Spelling(), HERE, Completion(text="fine", finish="stop"))
    again = policy.parse_reply(Spelling(), other, answer)
    assert (
        isinstance(again, policy.Reply)
        and again.task == "another"
        and policy.parse_reply(Spelling(), HERE, answer) is answer
    )
    bad = policy.parse_reply(Spelling(), HERE, Completion(text="x", finish="stop"))
    assert policy.read(Spelling(), other, bad, "", (), "") == "there is an x"


class Two(Speller):
    """A model whose second answer to an equal question does not parse."""

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        found = super().generate(conversations, sampling)
        first = not any(conversation.begun for conversation in conversations)
        return [Completion(text="fine", finish="stop"), *found[1:]] if first else found


def two(limit: int = 99) -> tuple[Two, EpisodeRunner]:
    class Limited(Two):
        def generate(
            self, conversations: Sequence[Conversation], sampling: Sampling
        ) -> list[Completion]:
            if len(self.calls) >= limit:
                raise OutOfTime
            return super().generate(conversations, sampling)

    settings = configured(rollouts=2, turns=1)
    return Limited({"": "xx", "a": "ax", "b": "bb"}, {"": {"a": 0.5, "b": 0.3}}), EpisodeRunner(
        0, HERE, (), Spelling(), settings, proposer="two"
    )


def test_what_can_be_read_is_judged_before_the_model_goes_on_with_the_rest() -> None:
    backbone, runner = two()
    rounds = one_round(runner, backbone, Spelling(), runner.config, set())
    assert [candidate.source for candidate in next(rounds)] == ["fine"] and len(backbone.calls) == 1
    wrong = Verdict(
        status=Status.LAUNCH_ERROR, tier="search", stage="check", error="no", machine="here"
    )
    assert [candidate.source for candidate in rounds.send([wrong])] == ["bb"] and len(
        backbone.calls
    ) == 4
    with pytest.raises(StopIteration):
        rounds.send([wrong])
    assert [turn.redrawn for trace in runner.episode().traces for turn in trace.turns] == [0, 2]


def test_when_time_is_over_an_answer_stays_as_it_was() -> None:
    backbone, runner = two(limit=2)
    rounds = one_round(runner, backbone, Spelling(), runner.config, set())
    next(rounds)
    with pytest.raises(OutOfTime):
        rounds.send(
            [
                Verdict(
                    status=Status.LAUNCH_ERROR,
                    tier="search",
                    stage="check",
                    error="no",
                    machine="here",
                )
            ]
        )
    assert [
        (turn.completion, turn.malformed)
        for trace in runner.episode().traces
        for turn in trace.turns
    ] == [("fine", None), ("xx", "there is an x")]


def test_a_served_models_name_is_no_device() -> None:
    """It ended `dvk sft collect --backbone endpoint:…` at the first answer that could not be read."""
    config = changed(Config(), {"backbone.endpoint_url": "http://127.0.0.1:9/v1"})
    assert parallel_attempts(open_backbone("endpoint:a-model", config)) == 1
