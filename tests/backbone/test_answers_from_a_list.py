"""Answers from a list: only listed answers, drawn as often as their probability says, and scored alike by sampler and learner."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from dvk.backbone import Conversation, Sampling, choosing, nano
from dvk.backbone.choosing import AnswerList
from dvk.backbone.hf import HfBackbone
from dvk.config import Config
from dvk.learn.learner import Learner
from dvk.learn.reinforce import logprobs, match
from dvk.learn.rows import TrainingRow

TEXTS = ("plan", "plan +own_matmul", "plan +own_matmul +cuda_graph", "plan\nk0 = flat block 256")
ASKED = Conversation(messages=({"role": "user", "content": "norm rows 12"},), choices=TEXTS)


@pytest.fixture(scope="module")
def backbone() -> HfBackbone:
    return nano.fresh(TEXTS, Config(), size="tiny", positions=256, dialect="plan", device="cpu")


def drawn(backbone: HfBackbone, count: int, temperature: float = 1.0) -> Counter[str]:
    answers = backbone.generate([ASKED] * count, Sampling(temperature=temperature, seed=3))
    assert all(answer.finish == "stop" for answer in answers)
    return Counter(answer.text for answer in answers)


def answer_list(backbone: HfBackbone) -> AnswerList:
    return AnswerList(backbone.encode(ASKED), [backbone.encode_answer(text) for text in TEXTS])


def alone(backbone: HfBackbone, text: str, temperature: float = 1.0) -> float:
    """Log-probability of all of an answer's tokens, from a whole pass over it."""
    asked, own = backbone.encode(ASKED), backbone.encode_answer(text)
    with torch.no_grad():
        logits = backbone.model(input_ids=torch.tensor([[*asked, *own]])).logits[0]
    logs = (logits / temperature).log_softmax(-1)
    return sum(float(logs[len(asked) + n - 1, token]) for n, token in enumerate(own))


def by_hand(backbone: HfBackbone, text: str, temperature: float = 1.0) -> float:
    """Log-probability of an answer among the listed ones."""
    every = torch.tensor([alone(backbone, one, temperature) for one in TEXTS])
    return float(every.log_softmax(0)[TEXTS.index(text)])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_an_answer_is_as_probable_as_if_the_model_wrote_freely_until_it_is_listed(
    backbone: HfBackbone, temperature: float
) -> None:
    batch = choosing.lay_out([answer_list(backbone)], "cpu")
    with torch.no_grad():
        found = choosing.scores(backbone.model, batch, temperature)
    (logs,) = choosing.of_answers(found, batch).log_softmax(-1)
    assert float(logs.exp().sum()) == pytest.approx(1.0, abs=1e-5)
    for log, text in zip(logs.tolist(), TEXTS, strict=True):
        assert log == pytest.approx(by_hand(backbone, text, temperature), abs=1e-4), text


def test_only_listed_answers_are_drawn_and_as_often_as_their_probability(
    backbone: HfBackbone,
) -> None:
    found = drawn(backbone, 2000)
    assert set(found) <= set(TEXTS) and found == drawn(backbone, 2000), "equal seeds, equal answers"
    for text in TEXTS:
        share = 2.718281828 ** by_hand(backbone, text)
        assert found[text] / 2000 == pytest.approx(share, abs=4 * (share / 2000) ** 0.5 + 1e-3)
    (likeliest,) = drawn(backbone, 5, temperature=0.0)
    assert likeliest == max(TEXTS, key=lambda text: by_hand(backbone, text))


def test_questions_with_and_without_a_list_keep_their_order(backbone: HfBackbone) -> None:
    free = ASKED.model_copy(update={"choices": ()})
    one = ASKED.model_copy(update={"choices": TEXTS[3:]})
    long = ASKED.model_copy(update={"messages": ({"role": "user", "content": "plan " * 300},)})
    answers = backbone.generate([one, free, ASKED, long], Sampling(seed=1, max_tokens=4))
    assert answers[0].text == TEXTS[3] and answers[2].text in TEXTS
    assert answers[1].tokens is not None and len(answers[1].tokens.completion) <= 4
    assert answers[3].finish == "error" and "leaves no room" in str(answers[3].error)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_learner_scores_an_answer_as_it_was_drawn(
    backbone: HfBackbone, temperature: float
) -> None:
    answers = backbone.generate([ASKED] * 8, Sampling(temperature=temperature, seed=5))
    free = ASKED.model_copy(update={"choices": ()})
    answers += backbone.generate([free], Sampling(temperature=temperature, seed=5, max_tokens=6))
    rows = []
    for answer in answers:
        assert answer.tokens is not None
        told = answer.tokens
        rows.append(TrainingRow.answer(told.prompt, told.completion, told.logprobs))
    config = Config()
    learner = Learner(backbone.model, config.learning, 4)
    found = match(learner, rows, config, temperature)
    assert found.kept == 1.0 and found.worst < 1e-4 and found.largest_ratio < 1.001
    whole = logprobs(learner, [rows[0]], config, temperature)
    assert sum(whole[0]) == pytest.approx(alone(backbone, answers[0].text, temperature), abs=1e-4)
