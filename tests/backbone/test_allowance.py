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


def ask(backbone: RecordedBackbone, number: int) -> None:
    backbone.generate(asking(*(str(n) for n in range(number))), HOW)


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
        with pytest.raises(CapReached, match="4 of 5 requests"):
            ask(counted, 2)
        model = Talking()
        model.name = "priced"
        priced = RecordedBackbone(model, run, OptimizeConfig(max_usd=0.02))
        priced.calls.clear()
        for _ in range(3):
            ask(priced, 4)  # 0.0084 USD at most
        assert model.limits == [1000, 1000, 350]
        assert sum(call.cost_usd or 0 for call in priced.calls) == pytest.approx(0.02)
        with pytest.raises(CapReached, match="--max-usd ended .* 0.02 of 0.02 USD"):
            ask(priced, 4)


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
