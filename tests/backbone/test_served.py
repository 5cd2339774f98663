"""`served:`: several servers as one, adapters, thoughts with a budget, keepers. Against vLLM itself: `test_served_vllm.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dvk.backbone import Conversation, Encoding, Renewed, Sampling, Trainable, open_backbone
from dvk.backbone.hf import HfBackbone
from dvk.backbone.served import pool as pools
from dvk.backbone.served.backbone import ServedBackbone, servers
from dvk.backbone.served.local import LocalServer
from dvk.backbone.served.pool import ServerPool
from dvk.config import Config
from dvk.errors import DvkError, MachineError, UsageError
from dvk.learn.rows import TrainingRow
from dvk.sandbox import proctree
from tests.backbone.token_serving import TokenServer, token_serving

CONFIG = Config.model_validate({"backbone": {"lora_rank": 4, "concurrency": 4}})
ASKED = [Conversation(messages=({"role": "user", "content": f"x{n}"},)) for n in range(6)]
HOW = Sampling(max_tokens=8, seed=1)


@pytest.fixture
def learner(nano_folder: Path) -> HfBackbone:
    found = open_backbone(f"nano:{nano_folder}", CONFIG, device="cpu")
    assert isinstance(found, HfBackbone)
    return found


@pytest.fixture
def two(nano_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TokenServer]]:
    monkeypatch.setattr(pools, "PAUSE_S", 0.01)
    made = []
    for _ in range(2):
        made.append(open_backbone(f"nano:{nano_folder}", CONFIG, device="cpu"))
    with token_serving(made[0], nano_folder) as one, token_serving(made[1], nano_folder) as other:  # type: ignore[arg-type]
        yield [one, other]


def served(found: list[TokenServer], learner: HfBackbone, folder: Path) -> ServedBackbone:
    pool = ServerPool(servers(",".join(one.url for one in found), CONFIG), 4)
    chat = learner.chat
    return ServedBackbone("served:test", pool, chat, "compact", CONFIG.backbone, folder)


def test_both_servers_sample_what_the_learner_would(
    two: list[TokenServer], learner: HfBackbone, tmp_path: Path
) -> None:
    backbone = served(two, learner, tmp_path / "weights")
    assert isinstance(backbone, Encoding) and isinstance(backbone, Renewed)
    assert not isinstance(backbone, Trainable)
    before = backbone.generate(ASKED, HOW)
    assert all(one.prompts for one in two)
    with torch.no_grad():
        for name, parameter in learner.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.5)
    backbone.renew(learner)
    backbone.renew(learner)
    assert all(len(one.adapters) == 1 for one in two), "the former adapter is unloaded"
    after = backbone.generate(ASKED, HOW)
    assert [a.text for a in after] != [a.text for a in before]
    greedy = Sampling(max_tokens=8, temperature=0)
    own = learner.generate(ASKED, greedy)
    for mine, theirs in zip(own, backbone.generate(ASKED, greedy), strict=True):
        assert mine.tokens is not None and theirs.tokens is not None
        assert mine.tokens.completion == theirs.tokens.completion
        assert theirs.tokens.logprobs == pytest.approx(mine.tokens.logprobs, abs=1e-4)
    assert len(list((tmp_path / "weights").iterdir())) == 2
    backbone.close()
    assert not (tmp_path / "weights").exists()


def test_rollouts_of_a_prompt_go_to_one_server(
    two: list[TokenServer], learner: HfBackbone, tmp_path: Path
) -> None:
    for one in two:
        one.delay_s = 0.02
    backbone = served(two, learner, tmp_path)
    backbone.generate([ASKED[0]] * 4 + [ASKED[1]] * 4, HOW)
    assert all(len({tuple(prompt) for prompt in one.prompts}) == 1 for one in two)


def test_a_dead_server_is_left_out_and_comes_back(
    two: list[TokenServer],
    learner: HfBackbone,
    nano_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    backbone = served(two, learner, tmp_path / "weights")
    backbone.renew(learner)
    port = two[1].server_port
    two[1].shutdown()
    two[1].server_close()
    answers = backbone.generate(ASKED, HOW)
    assert all(answer.tokens is not None for answer in answers)
    assert "is left out" in (said := capsys.readouterr().err) and "1 of 2 left" in said
    with token_serving(two[1].backbone, nano_folder, port) as again:
        backbone.generate(ASKED, HOW)
        assert again.prompts and len(again.adapters) == 1, "with the adapter that it had lost"
    two[0].shutdown()
    two[0].server_close()
    with pytest.raises(MachineError, match="no server answers"):
        backbone.generate(ASKED, HOW)


def test_busy_and_refusing_servers(
    two: list[TokenServer], learner: HfBackbone, tmp_path: Path
) -> None:
    backbone = served(two[:1], learner, tmp_path / "weights")
    two[0].stumbles = [(503, "later"), (429, "slower"), (400, "no such token\nmore")]
    answers = backbone.generate(ASKED, HOW)
    assert [a.error for a in answers if a.error] == ["no such token"]
    two[0].stumbles = [(401, "who are you?")]
    with pytest.raises(UsageError, match="who are you") as refused:
        backbone.generate(ASKED, HOW)
    assert "key" in refused.value.hint
    two[0].stumbles = [(500, "engine")] * 99
    failed = backbone.generate(ASKED[:1], HOW)[0]
    assert failed.finish == "error" and "engine" in str(failed.error)
    two[0].stumbles, two[0].takes_adapters = [], False
    with pytest.raises(MachineError, match="does not load the LoRA adapter") as unloaded:
        backbone.renew(learner)
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in unloaded.value.hint


@pytest.mark.parametrize(
    "spec, message",
    [
        ("served:", "no server given"),
        ("served:localhost:80", "not a server's URL"),
        ("served:http://127.0.0.1:9", "no server answers"),
    ],
)
def test_specs_that_name_no_server(spec: str, message: str) -> None:
    with pytest.raises(DvkError, match=message):
        open_backbone(spec)


@pytest.mark.parametrize("place", ["served", "here"])
def test_a_thought_over_its_budget_is_closed(
    place: str, two: list[TokenServer], learner: HfBackbone, tmp_path: Path
) -> None:
    """The closing tokens are in the answer, have no probability of the sampler, and are not learned."""
    learner.chat.template = learner.chat.template.replace("<|assistant|>", "<|assistant|><think>")
    settings = CONFIG.backbone.model_copy(update={"thinking": True, "thinking_tokens": 4})
    backbone: HfBackbone | ServedBackbone = served(two, learner, tmp_path)
    if place == "here":
        backbone = learner
    backbone.settings = settings
    plain = learner.chat.encode_text("\n</think>\n\n")
    for answer in backbone.generate(ASKED, Sampling(max_tokens=30, seed=1)):
        tokens = answer.tokens
        assert tokens is not None
        if len(tokens.completion) <= 4:  # it ended within its budget
            continue
        assert tokens.given == tuple(range(4, 4 + len(plain)))
        assert tokens.completion[4 : 4 + len(plain)] == plain
        assert len(tokens.logprobs) == len(tokens.completion) <= 30
        assert "</think>" in answer.text and answer.text.startswith("<think>")
        row = TrainingRow.answer(
            tokens.prompt, tokens.completion, tokens.logprobs, tokens.given, advantage=1.0
        )
        assert sum(row.targets) == len(row.logprobs) == len(tokens.completion) - len(plain)
        assert 0.0 not in [round(score, 9) for score in row.logprobs]
        break
    else:
        pytest.fail("every answer ended within four tokens")


CHILDREN = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    while True: time.sleep(1)
open(sys.argv[1], "w").write("up")
while True: time.sleep(1)
"""
"""A server with a process in another session, as vLLM's engine."""


def _keeper(tmp_path: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    (tmp_path / "server.py").write_text(CHILDREN)
    up = tmp_path / "up"
    command = [sys.executable, str(tmp_path / "server.py"), str(up)]
    keeper = subprocess.Popen(
        [sys.executable, "-m", "dvk.backbone.served.keeper", str(tmp_path / "log"), *command],
        stdin=subprocess.PIPE,
    )
    deadline = time.monotonic() + 30
    while not up.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    tree = proctree.below(keeper.pid)
    assert len(tree) == 2
    return keeper, tree


@pytest.mark.parametrize("how", ["closed", "server killed", "terminated"])
@pytest.mark.slow
def test_no_process_outlives_its_keeper(how: str, tmp_path: Path) -> None:
    keeper, tree = _keeper(tmp_path)
    assert keeper.stdin is not None
    if how == "closed":
        keeper.stdin.close()
    elif how == "terminated":
        keeper.terminate()
    else:
        os.kill(tree[0], signal.SIGKILL)
    keeper.wait(20)
    assert not any(Path(f"/proc/{pid}").exists() for pid in tree)


@pytest.mark.slow
def test_a_local_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    told = Config.model_validate(
        {"served": {"command": f"{sys.executable} -c \"raise ValueError('no room')\""}}
    )
    with pytest.raises(MachineError, match="ValueError: no room"):
        LocalServer("model", told, tmp_path / "log").start()
    # As vLLM ends when its engine fails: the cause is in another process's lines, each twice.
    cause = "ModuleNotFoundError: No module named 'kernels'"
    log = f"""(API pid=1) WARNING 11-27 errors like `OSError: [Errno 24] Too many open files`
(Engine pid=2) ERROR 11-27 [core.py:1] {cause}
(Engine pid=2) {cause}
(API pid=1)     raise RuntimeError(
(API pid=1) RuntimeError: no engine
"""
    (tmp_path / "long").write_text(log)
    engineless = Config.model_validate({"served": {"command": "false"}})
    with pytest.raises(MachineError) as raised:
        LocalServer("model", engineless, tmp_path / "long").start()
    assert f"started: {cause} / RuntimeError: no engine" in str(raised.value)
    missing = Config.model_validate({"served": {"command": "no-such-vllm serve"}})
    with pytest.raises(UsageError, match="no command `no-such-vllm`"):
        LocalServer("model", missing, tmp_path / "log").start()
