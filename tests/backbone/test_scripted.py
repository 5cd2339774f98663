"""The shipped fake follows its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk.backbone import Sampling, open_backbone
from dvk.errors import UsageError
from tests.backbone.scripts import CALL, asking, script


def test_matches_serve_again_and_the_rest_in_order(tmp_path: Path) -> None:
    fake = script(
        tmp_path,
        {"answer": "first"},
        {"match": "relu$", "answer": "a relu"},
        "",
        {"answer": "second", "finish": "length"},
        {"tool_calls": [CALL]},
        {"finish": "error", "answer": "the server is on fire"},
    )
    answers = fake.generate(asking("one", "a\nrelu", "two", "relu", "three", "four"), Sampling())
    assert [a.text for a in answers] == ["first", "a relu", "second", "a relu", "", ""]
    assert [a.finish for a in answers] == ["stop", "stop", "length", "stop", "stop", "error"]
    assert answers[4].tool_calls == (CALL,) and answers[5].error == "the server is on fire"
    assert fake.usage.prompt_tokens == 7 and fake.usage.completion_tokens == 6
    with pytest.raises(UsageError, match="no answer left"):
        fake.generate(asking("five"), Sampling())


def test_dialect_stop_and_echo(tmp_path: Path) -> None:
    fake = script(tmp_path, {"dialect": "compact"}, {"match": "", "answer": "code```after"})
    assert fake.dialect == "compact"
    assert fake.generate(asking("x"), Sampling(stop=("```",)))[0].text == "code"
    assert open_backbone("scripted").generate(asking("say this"), Sampling())[0].text == "say this"


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1]",
        '{"answer": "x", "anser": 1}',
        '{"match": "x"}',
        '{"match": "(", "answer": ""}',
        '{"answer": "x", "finish": "maybe"}',
        '{"dialect": "klingon"}',
    ],
)
def test_malformed_lines_are_said(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageError, match="line 1"):
        script(tmp_path, line)


def test_a_missing_script_is_said() -> None:
    with pytest.raises(UsageError, match="cannot read"):
        open_backbone("scripted:/no/such/script.jsonl")
