"""`served:` against a real vLLM: tokens, log-probabilities, adapters, whole weights, kills. By hand: the environment is large."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dvk.backbone import Conversation, Sampling, ScoringRow, open_backbone
from dvk.backbone.hf import HfBackbone
from dvk.backbone.served.backbone import ServedBackbone, servers
from dvk.backbone.served.local import LocalServer
from dvk.backbone.served.pool import ServerPool
from dvk.config import Config
from dvk.errors import UsageError
from dvk.learn.learner import Learner
from dvk.learn.reinforce import update
from dvk.learn.rows import TrainingRow
from dvk.sandbox import proctree
from tests.backbone.conftest import TEXTS
from tests.backbone.vllm_environment import settings, started, use_little, write_qwen3

pytestmark = [pytest.mark.hand, pytest.mark.slow, pytest.mark.timeout(900)]

ASKED = [Conversation(messages=({"role": "user", "content": "write x0 and v0"},))] * 32


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen3(tmp_path_factory.mktemp("models") / "qwen3", TEXTS)


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    with pytest.MonkeyPatch.context() as patch:
        use_little(patch)
        found = started(model, settings(), tmp_path_factory.mktemp("logs") / "server.log")
        yield found
        found.stop()


@pytest.fixture
def learner(model: Path) -> HfBackbone:
    found = open_backbone(f"hf:{model}", settings(), device="cpu")
    assert isinstance(found, HfBackbone)
    return found


def served(url: str, learner: HfBackbone, folder: Path, config: Config) -> ServedBackbone:
    pool = ServerPool(servers(url, config), config.backbone.concurrency)
    return ServedBackbone("served:test", pool, learner.chat, "chat", config.backbone, folder)


def largest_gap(learner: HfBackbone, answers: list) -> float:
    """Largest difference of learner's and server's log-probability of a token, in nats."""
    rows = [ScoringRow(a.tokens.prompt, a.tokens.completion) for a in answers]
    with torch.no_grad():
        values = learner.logprobs(rows).values
    return max(
        float((values[i, : len(a.tokens.completion)] - torch.tensor(a.tokens.logprobs)).abs().max())
        for i, a in enumerate(answers)
    )


def test_token_ids_and_logprobs_are_the_models_and_follow_the_adapter(
    server: LocalServer, learner: HfBackbone, tmp_path: Path
) -> None:
    backbone = served(server.url, learner, tmp_path / "weights", settings())
    backbone.renew(learner)
    how = Sampling(max_tokens=48, seed=1)
    backbone.generate(ASKED[:2], how)  # the first call compiles
    warmed = backbone.usage.completion_tokens
    began = time.perf_counter()
    before = backbone.generate(ASKED, how)
    speed = (backbone.usage.completion_tokens - warmed) / (time.perf_counter() - began)
    assert len({a.text for a in before}) > 16, "equal questions draw differently"
    assert largest_gap(learner, before) < 1e-4
    assert [a.text for a in backbone.generate(ASKED, how)] == [a.text for a in before]
    with torch.no_grad():
        for name, parameter in learner.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    backbone.renew(learner)
    after = backbone.generate(ASKED, how)
    assert sum(a.text != b.text for a, b in zip(before, after)) > 16
    assert largest_gap(learner, after) < 1e-4
    print(f"{speed:.0f} tokens/s, swap {backbone.swap_s:.3f} s, gap {largest_gap(learner, after)}")


def test_stop_texts_limits_and_long_prompts(server: LocalServer, learner: HfBackbone) -> None:
    backbone = open_backbone(f"served:{server.url}/v1", settings())
    answers = backbone.generate(ASKED, Sampling(max_tokens=64, seed=2, stop=("a",)))
    assert all("a" not in answer.text for answer in answers)
    assert any(answer.finish == "stop" and answer.tokens is not None for answer in answers)
    greedy = backbone.generate(ASKED[:2], Sampling(max_tokens=16, temperature=0))
    own = learner.generate(ASKED[:1], Sampling(max_tokens=16, temperature=0))[0]
    assert greedy[0].tokens == greedy[1].tokens
    assert greedy[0].text == own.text
    long = Conversation(messages=({"role": "user", "content": "x" * 3000},))
    short = Conversation(messages=({"role": "user", "content": "x"},))
    first, second = backbone.generate([long, short], Sampling(max_tokens=4096))
    assert first.finish == "error" and "leaves no room" in str(first.error)
    assert second.tokens is not None and len(second.tokens.completion) < 512


def test_a_temperature_needs_logprobs_of_what_was_sampled(
    server: LocalServer, learner: HfBackbone, tmp_path: Path
) -> None:
    """A server that dvk starts gives them; the learner scores at the same temperature."""
    backbone = served(server.url, learner, tmp_path / "weights", settings())
    backbone.pool.alive[0].require_sampled_logprobs()
    answers = backbone.generate(ASKED[:4], Sampling(max_tokens=24, seed=1, temperature=0.7))
    rows = [ScoringRow(a.tokens.prompt, a.tokens.completion) for a in answers if a.tokens]
    with torch.no_grad():
        values = learner.logprobs(rows, 0.7).values
    tokens = answers[0].tokens
    assert tokens is not None
    assert torch.allclose(
        values[0, : len(tokens.completion)], torch.tensor(tokens.logprobs), atol=1e-4
    )


def test_a_reward_rises_through_the_server(
    server: LocalServer, learner: HfBackbone, tmp_path: Path
) -> None:
    """REINFORCE on the share of digits in an answer: each step samples on the server, learns here, swaps the adapter."""
    config = settings(credit={"mismatch": 0.01}, learning={"pack_tokens": 512, "micro_packs": 8})
    backbone = served(server.url, learner, tmp_path / "weights", config)
    optimizer = Learner(
        learner.model,
        config.learning.model_copy(
            update={"rate": 2e-2, "schedule": "constant", "warmup": 0, "precision": "fp32"}
        ),
        8,
    )
    means = []
    for step in range(3):
        backbone.renew(learner)
        answers = backbone.generate(ASKED * 2, Sampling(max_tokens=24, seed=step))
        rewards = [sum(c.isdigit() for c in a.text) / max(1, len(a.text)) for a in answers]
        means.append(sum(rewards) / len(rewards))
        spread = math.sqrt(sum((r - means[-1]) ** 2 for r in rewards) / len(rewards))
        rows = [
            TrainingRow.answer(
                a.tokens.prompt,
                a.tokens.completion,
                a.tokens.logprobs,
                advantage=(reward - means[-1]) / spread,
            )
            for a, reward in zip(answers, rewards)
            if a.tokens is not None
        ]
        figures = update(optimizer, rows, config, seed=step)
        assert figures["kept"] == 1.0 and figures["mismatch_token"] < 1e-4
        assert 1.0 <= figures["mismatch_ratio"] < 1.01
    print(f"mean reward by step: {means}")
    assert means[2] > 1.5 * means[0]


def test_whole_weights_are_reloaded(tmp_path: Path) -> None:
    """With a head apart: vLLM 0.32 for CPUs keeps a packed copy of a tied one, which its reload does not renew."""
    model = write_qwen3(tmp_path / "qwen3", TEXTS, tie_word_embeddings=False)
    config = settings(backbone={"lora_rank": 0})
    whole = open_backbone(f"hf:{model}", config, device="cpu")
    assert isinstance(whole, HfBackbone)
    with pytest.MonkeyPatch.context() as patch:
        use_little(patch)
        one = started(model, config, tmp_path / "server.log")
        try:
            backbone = served(one.url, whole, tmp_path / "weights", config)
            with torch.no_grad():
                for parameter in whole.parameters():
                    parameter.mul_(1.1)
            backbone.renew(whole)
            answers = backbone.generate(ASKED, Sampling(max_tokens=24, seed=1))
            assert largest_gap(whole, answers) < 1e-4
        finally:
            one.stop()


def test_a_server_without_adapters_says_what_it_needs(
    server: LocalServer, model: Path, tmp_path: Path
) -> None:
    whole = open_backbone(f"hf:{model}", settings(backbone={"lora_rank": 0}), device="cpu")
    assert isinstance(whole, HfBackbone)
    backbone = served(server.url, whole, tmp_path / "weights", settings())
    with pytest.raises(Exception, match="does not reload its weights") as raised:
        backbone.renew(whole)
    assert "VLLM_SERVER_DEV_MODE" in str(raised.value)
    with pytest.raises(UsageError, match="does not serve `other`"):
        open_backbone(f"served:{server.url}", settings(served={"model": "other"}))


def test_killed_servers_cost_no_answer_and_leave_no_process(
    server: LocalServer, learner: HfBackbone, model: Path, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        use_little(patch)
        second = started(model, settings(), tmp_path / "second.log")
    backbone = served(f"{server.url},{second.url}", learner, tmp_path / "weights", settings())
    backbone.renew(learner)
    keeper = second._keeper
    assert keeper is not None
    tree = proctree.below(keeper.pid)
    assert len(tree) >= 2, "the API server and its engine"
    backbone.generate(ASKED, Sampling(max_tokens=8, seed=1))

    def kill() -> None:
        time.sleep(0.3)
        os.kill(tree[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    answers = backbone.generate(ASKED * 4, Sampling(max_tokens=100, seed=1))
    killer.join()
    assert all(answer.tokens is not None for answer in answers)
    assert [one.url for one in backbone.pool.alive] == [server.url]
    keeper.wait(20)
    assert not any(Path(f"/proc/{pid}").exists() for pid in tree)
    second.stop()
    second.start()  # at the same URL, without the adapter
    try:
        again = backbone.generate(ASKED * 4, Sampling(max_tokens=8, seed=1))
        assert len(backbone.pool.alive) == 2
        assert largest_gap(learner, again) < 1e-4
    finally:
        second.stop()
