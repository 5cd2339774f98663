"""`dvk sft collect`: the composer's lessons, with one task really executed; killed and resumed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dvk import machine
from dvk.agents import dialects
from dvk.backbone import Completion
from dvk.config import Config
from dvk.errors import UsageError
from dvk.harness.session.concurrency import PER_GPU
from dvk.learn.diversity import filter
from dvk.learn.examples import read
from dvk.pipelines.sft import episodes as playing
from dvk.pipelines.sft import stages
from dvk.pipelines.sft.collect import RenderBlock, render, varied
from dvk.pipelines.sft.episodes import at_a_time
from dvk.pipelines.sft.stages import BACKENDS, SftRequest, sft
from dvk.taskgen import generate, make
from tests.python_path import python_path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = Config.model_validate(
    {
        "seed": 3,
        "collect": {"tasks": 3, "played": 1, "executed": 0},
        "judge": {"search_s": 0.05, "num_seeds": 1},
    }
)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sft") / "run"
    told = sft(SftRequest(stages=("collect",), backends=("cpp",), workers=1, out=folder), CONFIG)
    return folder, told["collect"]


@pytest.mark.slow
def test_renderings_are_conversations_with_their_code(
    collected: tuple[Path, dict[str, Any]],
) -> None:
    folder, told = collected
    found = list(read(folder / "collect" / "renderings" / "cpp_00000.jsonl"))
    assert told["tasks"] == 3 and len(found) == told["examples"] >= 6
    for example in found:
        assert example.code == example.messages[-1]["content"] and "return " in example.code
        assert not example.verified and example.speedup is None, "they were not executed"
        assert example.messages[0]["content"].startswith("cpp ")
    assert {e.kind for e in found} == {"policy", "policy_with_skills"}


@pytest.mark.slow
def test_played_examples_carry_what_was_measured(collected: tuple[Path, dict[str, Any]]) -> None:
    folder, told = collected
    found = list(read(folder / "collect" / "played" / "examples.jsonl"))
    (episode,) = [json.loads(line) for line in (folder / playing.EPISODES).read_text().splitlines()]
    turns = [trace["turns"][0] for trace in episode["traces"]]
    assert told["played_attempts"] == len(turns) >= 3
    speedups = {
        t["completion"]: t["verdict"]["timing"]["speedup"]["value"]
        for t in turns
        if t["verdict"] and t["verdict"]["timing"]
    }
    assert speedups, "nothing was right"
    for example in found:
        assert example.verified and example.speedup in speedups.values()
        if example.code:
            assert speedups[example.code] == example.speedup
    plain = [e for e in found if e.kind == "policy" and len(e.messages) == 2]
    assert [e.speedup for e in plain] == [max(speedups.values())]
    assert any(e.kind == "selection" for e in found)


@pytest.mark.slow
def test_after_attempts_comes_the_fastest_that_was_not_tried(
    collected: tuple[Path, dict[str, Any]],
) -> None:
    folder, _ = collected
    (episode,) = [json.loads(line) for line in (folder / playing.EPISODES).read_text().splitlines()]
    turns = {t["completion"].strip(): t for trace in episode["traces"] for t in trace["turns"]}
    right = {
        text: t["verdict"]["timing"]["speedup"]["value"]
        for text, t in turns.items()
        if t.get("verdict") and t["verdict"].get("timing")
    }
    found = [
        e
        for e in read(folder / "collect" / "played" / "examples.jsonl")
        if e.kind.startswith("policy") and len(e.messages) > 2
    ]
    assert {len(e.messages) for e in found} == {4, 6}
    for example in found:
        *tried, answer = [
            m["content"].strip() for m in example.messages if m["role"] == "assistant"
        ]
        assert (
            right[answer]
            == max(speed for text, speed in right.items() if text not in tried)
            == example.speedup
        )
        assert example.round_speedups == (*(right.get(text) for text in tried), right[answer])
        said = [
            m["content"].splitlines()[0].split()[0] for m in example.messages if m["role"] == "user"
        ][1:]
        assert [word == "ok" for word in said] == [text in right for text in tried]
        assert [word == "unread" for word in said] == [
            turns[text].get("malformed") is not None for text in tried
        ]


@pytest.mark.slow
def test_summaries_learn_what_made_a_conversation_faster(
    collected: tuple[Path, dict[str, Any]],
) -> None:
    folder, _ = collected
    for example in (
        e for e in read(folder / "collect" / "played" / "examples.jsonl") if e.kind == "summary"
    ):
        speeds = [speed or 0.0 for speed in example.round_speedups]
        assert example.speedup == max(speeds)
        assert (example.answer() == "none") == (not example.chosen)
        if example.chosen:
            assert max(speeds) > 1.03 * speeds[0] and example.answer().startswith("skill ")


@pytest.mark.slow
def test_resuming_repeats_no_episode(collected: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = collected
    before = (
        (folder / playing.EPISODES).read_text(),
        sorted(p.stat().st_mtime_ns for p in (folder / "collect").rglob("*.jsonl")),
    )
    told = sft(
        SftRequest(stages=("collect",), backends=("cpp",), workers=1, out=folder, resume=True),
        CONFIG,
    )["collect"]
    assert told["tasks"] == 3 and told["played_played"] == 1
    assert (
        (folder / playing.EPISODES).read_text(),
        sorted(p.stat().st_mtime_ns for p in (folder / "collect").rglob("*.jsonl")),
    ) == before


@pytest.mark.slow
def test_diversify_takes_both_kinds(collected: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = collected
    told = sft(SftRequest(stages=("filter", "diversify"), out=folder, resume=True), CONFIG)
    assert told["filter"]["kept"] and told["diversify"]["num_rows"] == told["filter"]["kept"]
    given = {
        e.id
        for path in (folder / "collect").rglob("*.jsonl")
        if path.name != "blocks.jsonl"
        for e in read(path)
    }
    kept = {e.id for e in read(folder / "diversify" / "kept.jsonl")}
    left_out = {
        json.loads(line)["id"]
        for stage in ("filter", "diversify")
        for line in (folder / stage / "rejected.jsonl").read_text().splitlines()
    }
    assert kept and kept | left_out == given and not kept & left_out


@pytest.mark.slow
def test_a_choice_of_nothing_is_kept_and_read_back(collected: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = collected
    found = [
        e for e in read(folder / "collect" / "played" / "examples.jsonl") if e.kind == "selection"
    ]
    none = [
        e.model_copy(
            update={
                "chosen": (),
                "speedup": 0.5,
                "lo": None,
                "messages": (*e.messages[:-1], {"role": "assistant", "content": "select none"}),
            }
        )
        for e in found
    ]
    assert none and [filter.reason(e) for e in none] == [None] * len(none)
    answer = Completion(text=none[0].answer(), finish="stop")
    assert dialects.get("compact").read_selection(answer, none[0].skills, CONFIG.agents) == []
    assert dialects.get("compact").write_selection(none[0].skills, {}, "") == none[0].answer()


@pytest.mark.parametrize(
    "asked, played",
    [({"tasks": 20}, 20), ({}, 300), ({"tasks": 20, "played": 40}, 40), ({"played": 0}, 0)],
)
def test_no_more_tasks_are_played_than_are_asked_for(asked: dict[str, int], played: int) -> None:
    assert Config.model_validate({"collect": asked}).collect.num_played == played


def test_what_is_played_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(stages, "renderings", lambda *_: {})
    monkeypatch.setattr(stages, "gate", lambda *_: {})
    monkeypatch.setattr(
        stages, "episodes", lambda run, config, num_tasks, *_: asked.append(num_tasks) or {}
    )
    monkeypatch.setattr(stages, "default_device", lambda: "cpu")
    config = Config.model_validate({"collect": {"tasks": 20}})
    for number, backend in enumerate(BACKENDS):
        sft(
            SftRequest(stages=("collect",), backends=(backend,), out=tmp_path / str(number)), config
        )
    assert asked == [20], "Triton's texts cannot be timed here"
    said = capfd.readouterr().err.splitlines()
    assert said == [
        "writing texts for 20 tasks, then playing 0 others",
        "writing texts for 20 tasks, then playing 20 others",
    ]


@pytest.mark.slow
def test_ctrl_c_waits_for_no_block_that_was_not_begun(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "dvk",
        "sft",
        "collect",
        "--out",
        "run",
        "--tasks",
        "500",
        "--backend",
        "cpp",
        "--workers",
        "1",
        "--set",
        "collect.mutants=0",
        "--set",
        "collect.oversample=1",
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": python_path()},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # tests in the background ignore it
    written = tmp_path / "run" / "collect" / "renderings"
    while process.poll() is None and not list(written.glob("*.jsonl")):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() != 0
    assert len(list(written.glob("*.jsonl"))) <= 2, (
        "of five; another may have ended before the signal came"
    )
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"


def test_nothing_collected_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing was collected"):
        sft(SftRequest(stages=("diversify",), out=tmp_path / "empty"), CONFIG)


@pytest.mark.parametrize(
    "free_gib, asked, given",
    [
        ((79,), 47, PER_GPU),
        ((79,), 4, 4),
        ((22,), 47, 5),
        ((22, 79), 47, 5 + PER_GPU),
        ((2,), 47, 1),
        ((), 47, PER_GPU),
    ],
)
def test_a_gpu_is_given_no_more_workers_than_its_clock_and_memory_serve(
    free_gib: tuple[int, ...], asked: int, given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "gpu_free_bytes", lambda: tuple(gib << 30 for gib in free_gib))
    assert at_a_time("triton", asked) == given and at_a_time("cpp", asked) == asked


def test_listings_for_a_gpu_lie_as_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a GPU: float32 attention answers there in another layout than on a CPU."""
    attention = make(244850944615683, "fusion", "cuda")
    assert attention is not None and "scaled_dot_product_attention" in attention.source
    monkeypatch.setattr("dvk.taskgen.generate", lambda *given, **named: [attention])
    for backend, lies in (("triton", True), ("cpp", False)):
        block = RenderBlock(0, 1, 1, backend, 3, 2, 0, 0, 0.0, 0.0, (), str(tmp_path))  # type: ignore[arg-type]
        render(block)
        listings = [str(row.messages[0]["content"]) for row in read(block.path)]
        assert listings and all(("@" in listing) is lies for listing in listings), backend


def test_tasks_with_rare_operators_are_written_about_first() -> None:
    made = list(generate(4, 240, device="cpu"))
    having = Counter(family for task in made for family in set(task.signature))
    kept = [task for seed in range(12) for task in varied(made, 60, random.Random(seed))]
    share = {
        name: sum(any(having[f] <= 3 for f in task.signature) for task in tasks) / len(tasks)
        for name, tasks in (("made", made), ("kept", kept))
    }
    assert share["kept"] > 1.9 * share["made"] > 0
    levels = Counter(task.level for task in made)
    assert {level: pytest.approx(count * 3, abs=12) for level, count in levels.items()} == Counter(
        task.level for task in kept
    )
    assert (
        varied(made, 60, random.Random(1)) == varied(made, 60, random.Random(1))
        and len(varied(made, 60, random.Random(1))) == 60
    )
    assert varied(made[:3], 3, random.Random(0)) == made[:3]


def test_tasks_with_favoured_operators_are_written_about_more_often() -> None:
    made = list(generate(4, 240, device="cpu"))

    def share(favoured: dict[str, float]) -> float:
        kept = [
            task for seed in range(12) for task in varied(made, 60, random.Random(seed), favoured)
        ]
        return sum("chunk" in task.operators for task in kept) / len(kept)

    assert share({"chunk": 20.0}) > 1.5 * share({}) > 0
