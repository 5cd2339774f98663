"""`dvk sft collect --backbone`: a model plays generated tasks, and what was right is learned from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dvk.config import Config
from dvk.learn.examples import read
from dvk.pipelines.sft import taught
from dvk.pipelines.sft.stages import SftRequest, sft
from dvk.records import Candidate, Episode, Trace, Turn, Verdict
from dvk.taskgen import generate
from tests.agents.conftest import ok, wrong

AUTHOR = '''
"""A model that hands the reference back as its answer, after a thought; its second answer is wrong."""

import re

from dvk.backbone import Completion, TokenUsage


class Author:
    name, dialect = "author", "chat"

    def __init__(self, argument, config, *, device=None):
        self.usage = TokenUsage()

    def generate(self, conversations, sampling):
        self.usage.add(100 * len(conversations), 50 * len(conversations), 0.1)
        return [self.answer(one) for one in conversations]

    def answer(self, conversation):
        text = str(conversation.messages[0]["content"]).split("The task:")[-1]
        source = re.search("```python\\n(.*?)```", text, re.S)[1]
        made = source.replace("class Model(", "class ModelNew(")
        if len(conversation.messages) > 1:
            made = "class ModelNew: pass"
        return Completion(text=f"<think>hm</think>So.\\n```python\\n{made}```", finish="stop")
'''


def played(verdict: Verdict, *, malformed: bool = False) -> Turn:
    return Turn(
        messages=({"role": "user", "content": "write"},),
        completion="<think>long</think>\nHere.\n```python\nclass ModelNew: ...\n```",
        candidate=None if malformed else Candidate(source="class ModelNew: ...", backend="cpp"),
        verdict=None if malformed else verdict,
        malformed="empty" if malformed else None,
    )


def test_what_was_right_becomes_an_example_without_thoughts() -> None:
    (made,) = generate(0, 1, device="cpu")
    asked = Turn(messages=({"role": "user", "content": "choose"},), completion="a", chosen=("a",))
    traces = (
        Trace(role="selection", scheme=0, turns=(asked,)),
        Trace(role="selection", scheme=1, turns=(asked,)),
        Trace(role="policy", scheme=0, skills=("a",), turns=(played(wrong()), played(ok(1.5)))),
        Trace(role="policy", turns=(played(ok(1.2)), played(ok(1.0), malformed=True))),
        Trace(role="summary", scheme=0, turns=(asked,)),
    )
    found = list(
        taught.examples(Episode(task=made.task(), traces=traces), made, "cpp", "endpoint:m")
    )
    assert [(e.kind, e.speedup, e.round_speedups) for e in found] == [
        ("policy_with_skills", 1.5, (None, 1.5)),
        ("policy", 1.2, (1.2,)),
        ("selection", 1.5, ()),
        ("summary", 1.5, ()),
    ], "the selection that led to the best"
    assert all(e.origin == "endpoint:m" and e.verified for e in found)
    assert (
        "think" not in str(found[0].messages[-1]) and found[0].messages[-1]["role"] == "assistant"
    )
    wrongs = (Trace(role="policy", turns=(played(wrong()),)), *traces[:2], traces[-1])
    assert not list(taught.examples(Episode(task=made.task(), traces=wrongs), made, "cpp", "m"))


@pytest.mark.slow
def test_a_model_teaches_and_a_second_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    (tmp_path / "author.py").write_text(AUTHOR)
    judge = {"candidate_s": 60, "search_s": 0.05, "num_seeds": 1, "search_pairs": 5}
    rollout = {"schemes": 0, "rollouts": 1, "turns": 2, "summaries": 0}

    def collect(tasks: int) -> dict[str, int]:
        config = Config.model_validate(
            {"judge": judge, "rollout": rollout, "collect": {"played": tasks}}
        )
        request = SftRequest(
            stages=("collect",),
            teacher=f"{tmp_path}/author.py:Author",
            workers=1,
            out=tmp_path / "run",
            resume=True,
        )
        told: dict[str, int] = sft(request, config)["collect"]
        return told

    first = collect(1)
    assert first["played"] == 1 and first["attempts"] == 2 and first["prompt_tokens"] == 200
    second = collect(2)
    assert second["played"] == 2 and second["prompt_tokens"] == 200, "the first is not played again"
    kept = list(read(tmp_path / "run" / "collect" / "played" / "taught.jsonl"))
    assert len(kept) == 2 and all(
        json.loads(e.model_dump_json())["origin"] == "author" for e in kept
    )
