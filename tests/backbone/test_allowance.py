"""Caps on tokens, dollars and requests: what fits is asked, with shorter answers near the end; the rest is refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dvk.backbone import Completion, Conversation, Sampling, TokenUsage, open_backbone
from dvk.backbone.allowance import CapReached
from dvk.backbone.hf import HfBackbone
from dvk.backbone.recorded import RecordedBackbone
from dvk.config import BackboneConfig, Config, OptimizeConfig
from dvk.errors import UsageError
from dvk.runs import RunFolder
from tests.backbone.scripts import asking
from tests.backbone.serving import serving

HOW = Sampling(max_tokens=1000)


class Talking:
    """Writes as much as it may, at 1 and 2 USD a million tokens."""

    name, dialect, prices = "talking", "chat", (1.0, 2.0)

    def __init__(self) -> None:
        self.usage, self.limits = TokenUsage(cost_usd=0.0), list[int]()

    def encode(self, conversation: Conversation) -> tuple[int, ...]:
        return tuple(range(100))

    def encode_answer(self, text: str) -> tuple[int, ...]:
        return ()

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        count = len(conversations)
        self.limits.append(sampling.max_tokens)
        written = count * sampling.max_tokens
        self.usage.add(100 * count, written, 0.1, (100 * count + 2 * written) / 1e6)
        return [Completion(text="x", finish="length") for _ in conversations]


def ask(backbone: RecordedBackbone, number: int) -> list[str]:
    """Ask so many questions; how the answers ended."""
    answers = backbone.generate(asking(*(str(n) for n in range(number))), HOW)
    return [answer.finish for answer in answers]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.open(
        tmp_path / "run", command="optimize", name="m", argv=[], config=Config(), resume=True
    )


def test_tokens_are_never_exceeded_and_a_resumed_run_counts_the_recorded_ones(
    run: RunFolder,
) -> None:
    with run:
        model, caps = Talking(), OptimizeConfig(max_tokens=4000)
        backbone = RecordedBackbone(model, run, caps)
        ask(backbone, 2)  # 2 × (100 + 1000)
        ask(backbone, 3)  # of the 1800 left, 300 are read
        assert model.limits == [1000, 500]
        with pytest.raises(CapReached, match=r"--max-tokens ended .* 4000 of 4000 tokens"):
            ask(backbone, 1)
        again = RecordedBackbone(Talking(), run, caps)
        ask(again, 2)
        ask(again, 3)
        with pytest.raises(CapReached, match="4000 of 4000"):
            ask(again, 1)
        assert again.usage.prompt_tokens + again.usage.completion_tokens == 4000


def test_requests_and_dollars(run: RunFolder) -> None:
    with run:
        counted = RecordedBackbone(Talking(), run, OptimizeConfig(max_requests=5))
        ask(counted, 4)
        assert ask(counted, 2) == ["length", "error"], "the first of them fits"
        with pytest.raises(CapReached, match="5 of 5 requests"):
            ask(counted, 2)
        model = Talking()
        model.name = "priced"
        priced = RecordedBackbone(model, run, OptimizeConfig(max_usd=0.02))
        priced.calls.clear()
        for _ in range(3):
            ask(priced, 4)  # 0.0084 USD at most
        assert model.limits == [1000, 1000, 750], "two useful answers rather than four short ones"
        assert sum(call.cost_usd or 0 for call in priced.calls) == pytest.approx(0.02)
        with pytest.raises(CapReached, match="--max-usd ended .* 0.02 of 0.02 USD"):
            ask(priced, 4)


def test_the_first_questions_are_asked_where_not_all_fit_and_a_resumed_run_gets_the_same(
    run: RunFolder,
) -> None:
    with run:
        model, caps = Talking(), OptimizeConfig(max_tokens=2500)
        first = ask(RecordedBackbone(model, run, caps), 8)
        assert first == ["length"] * 4 + ["error"] * 4 and model.limits == [525]
        again = RecordedBackbone(Talking(), run, caps)
        assert ask(again, 8) == first
        assert again.usage.completion_tokens == model.usage.completion_tokens == 4 * 525
        with pytest.raises(CapReached, match="2500 of 2500 tokens"):
            ask(again, 8)


def test_the_length_of_prompts_is_learned_from_the_server(run: RunFolder) -> None:
    """A server's own counts replace the guess of two bytes a token; unreported ones leave no room to hope."""

    class Elsewhere:
        name, dialect, prices = "elsewhere", "chat", None

        def __init__(self, bytes_a_token: float) -> None:
            self.usage, self.rate, self.limits = TokenUsage(), bytes_a_token, list[int]()

        def generate(
            self, conversations: Sequence[Conversation], sampling: Sampling
        ) -> list[Completion]:
            read = sum(len(c.model_dump_json().encode()) for c in conversations)
            self.limits.append(sampling.max_tokens)
            self.usage.add(int(read / self.rate), 10, 0.1)
            return [Completion(text="x", finish="stop") for _ in conversations]

    long = "word " * 2000
    size = len(asking(long)[0].model_dump_json().encode())
    how = Sampling(max_tokens=100_000)
    with run:
        for rate, expected in ((3.5, 0.9 * 3.5), (1.0, 0.9), (9.0, 4.0)):
            model = Elsewhere(rate)
            model.name = f"elsewhere {rate}"
            backbone = RecordedBackbone(model, run, OptimizeConfig(max_tokens=100_000))
            backbone.calls.clear()
            for _ in range(2):
                backbone.generate(asking(long), how)
            assert model.limits[0] == 100_000 - size // 2
            used = int(size / rate) + 10
            assert model.limits[1] == pytest.approx(100_000 - used - size / expected, abs=5)


def test_dollars_need_prices(run: RunFolder) -> None:
    with run, pytest.raises(UsageError, match="--max-usd needs the model's prices"):
        model = Talking()
        model.prices = None  # type: ignore[assignment]
        RecordedBackbone(model, run, OptimizeConfig(max_usd=1.0))


def test_unreported_usage_counts_at_its_worst(shared_nano: HfBackbone) -> None:
    with serving(shared_nano) as server:
        server.reports_usage = False
        settings = BackboneConfig(endpoint_url=server.url)
        backbone = open_backbone("endpoint:tiny", Config(backbone=settings))
        asked = asking("x0")
        (answer,) = backbone.generate(asked, Sampling(max_tokens=50, seed=1))
    assert answer.finish != "error"
    assert backbone.usage.completion_tokens == 50
    assert backbone.usage.prompt_tokens == len(asked[0].model_dump_json())
