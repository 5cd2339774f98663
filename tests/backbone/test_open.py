"""Every entry of the table keeps one contract; a user's own file may stand in for one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dvk.backbone import (
    BACKBONES,
    Backbone,
    Completion,
    Conversation,
    Sampling,
    TokenUsage,
    Trainable,
    open_backbone,
)
from dvk.backbone.hf import HfBackbone
from dvk.config import BackboneConfig as Settings
from dvk.config import Config
from dvk.errors import UsageError
from tests.backbone.scripts import asking
from tests.backbone.serving import serving
from tests.backbone.token_serving import token_serving

OWN = """
from dvk.backbone import Completion, TokenUsage

class Shouting:
    name, dialect = "shouting", "chat"

    def __init__(self, argument, config, *, device=None):
        self.usage = TokenUsage()

    def generate(self, conversations, sampling):
        return [Completion(text=c.messages[-1]["content"].upper(), finish="stop") for c in conversations]
"""


@pytest.fixture
def specs(
    nano_folder: Path, shared_nano: HfBackbone, tmp_path: Path
) -> Iterator[dict[str, tuple[str, Config]]]:
    """A working spec and its settings for every entry, and for a file of the user's."""
    (tmp_path / "own.py").write_text(OWN)
    with ExitStack() as stack:
        server = stack.enter_context(serving(shared_nano))
        tokens = stack.enter_context(token_serving(shared_nano, nano_folder))
        at_server = Config(backbone=Settings(endpoint_url=server.url))
        yield {
            "hf": (f"hf:{nano_folder}", Config()),
            "davinci": (f"davinci:{nano_folder}", Config()),
            "nano": (f"nano:{nano_folder}", Config()),
            "endpoint": ("endpoint:tiny", at_server),
            "served": (f"served:{tokens.url}", Config()),
            "scripted": ("scripted", Config()),
            "own": (f"{tmp_path / 'own.py'}:Shouting", Config()),
        }


@pytest.mark.parametrize("name", [*BACKBONES, "own"])
def test_every_backbone_keeps_the_contract(name: str, specs: dict[str, tuple[str, Config]]) -> None:
    spec, config = specs[name]
    backbone = open_backbone(spec, config, device="cpu")
    assert (
        isinstance(backbone, Backbone)
        and backbone.name
        and backbone.dialect in ("chat", "compact", "davinci")
    )
    assert isinstance(backbone.usage, TokenUsage) and backbone.usage.completion_tokens == 0
    asked = asking("aa", "v0 = aten.relu", "x0", "aa")
    sampling = Sampling(temperature=0, max_tokens=8)
    together = backbone.generate(asked, sampling)
    assert len(together) == 4 and all(isinstance(answer, Completion) for answer in together)
    assert [a.text for a in together] == [
        backbone.generate([c], sampling)[0].text for c in asked
    ], "in order, one by one or together"
    assert {a.finish for a in together} <= {"stop", "length"}
    assert backbone.generate([], sampling) == []
    if name != "own":
        assert (
            backbone.usage.prompt_tokens > 0
            and backbone.usage.completion_tokens > 0
            and backbone.usage.seconds > 0
        )
    told = Conversation(
        messages=({"role": "system", "content": "S"}, {"role": "user", "content": "U"}), tools=()
    )
    assert backbone.generate([told], sampling)[0].finish in ("stop", "length")
    assert isinstance(backbone, Trainable) == (name in ("hf", "nano", "davinci"))
    for answer in together:
        knows_tokens = isinstance(backbone, Trainable) or name == "served"
        assert (answer.tokens is not None) == knows_tokens
        if answer.tokens is not None:
            assert len(answer.tokens.logprobs) == len(answer.tokens.completion) <= 8


@pytest.mark.parametrize("spec", ["", "gpt", "missing.py:Model"])
def test_unknown_names_are_said(spec: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_backbone(spec)
    assert "nano" in caught.value.hint or "path" in caught.value.hint


def test_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, dvk.backbone; from dvk.backbone import open_backbone; open_backbone('scripted');"
        "print(sorted({'torch', 'transformers', 'peft', 'openai'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_usage_adds_from_many_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    usage = TokenUsage()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: usage.add(1, 2, 0.5, 0.25), range(400)))
    assert (usage.prompt_tokens, usage.completion_tokens, usage.seconds, usage.cost_usd) == (
        400,
        800,
        200.0,
        100.0,
    )


def test_a_completion_does_not_contradict_itself() -> None:
    with pytest.raises(ValueError, match="if and only if"):
        Completion(text="", finish="error")
    with pytest.raises(ValueError, match="if and only if"):
        Completion(text="", finish="stop", error="why")
